//! Text and data of a notification, for every channel. Names and arguments are chosen by models: nothing in them is
//! markup, mentions anybody or hides.

use serde_json::{Value, json};

use super::{
    destinations::NotificationDestination,
    events::{EventSubject, NotificationEvent},
};
use crate::gate::{Gate, NoAnswer};
use callgate_core::domain::{
    ids::TenantId,
    inbox::{Question, QuestionState, Resolution},
    time::{Timestamp, wait_in_words},
    tool::RiskLevel,
    visible::is_visible,
};

/// Characters of a name.
const NAME_MAX: usize = 120;
/// Characters of a text.
const TEXT_MAX: usize = 600;
/// Characters of arguments. Longer ones are cut, and can be approved in the console alone.
pub(super) const ARGUMENTS_MAX: usize = 2_500;

/// A notification.
#[derive(Debug, Clone)]
pub(super) struct NotificationMessage {
    /// The webhook's `type`.
    pub(super) kind: &'static str,
    pub(super) tenant: String,
    pub(super) at: Timestamp,
    pub(super) title: String,
    /// Labels with their values.
    pub(super) fields: Vec<(&'static str, String)>,
    /// Arguments of the call, where the destination gets them.
    pub(super) arguments: Option<ShownArguments>,
    /// The next step of the reader.
    pub(super) next_step: String,
    /// The page of the console.
    pub(super) url: String,
    /// For programs.
    pub(super) data: Value,
    /// The approval request, while it can be answered.
    pub(super) open_request: Option<String>,
}

/// Arguments as they are shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownArguments {
    pub(super) text: String,
    /// True when nothing was cut.
    pub(super) is_whole: bool,
}

impl NotificationMessage {
    /// The message of a queued event; none when nobody needs it any more, such as an answered request.
    pub(super) async fn of(
        gate: &Gate,
        destination: &NotificationDestination,
        (id, tenant): (TenantId, &str),
        (event, subject): (NotificationEvent, &EventSubject),
    ) -> Result<Option<Self>, NoAnswer> {
        let now = gate.store.now();
        Ok(match subject {
            EventSubject::Approval { approval_id } => {
                let Some(question) = gate.approvals.question(id, approval_id).await? else { return Ok(None) };
                of_request(gate, destination, (id, tenant), event, &question)
            }
            EventSubject::Halt { target, by, at_ms } => {
                let halts = gate.server.halts(id);
                let halt = halts.iter().find(|halt| halt.what.describe() == *target);
                let reason = halt.map(|halt| halt.reason.clone()).filter(|reason| !reason.is_empty());
                Some(of_halt(destination, tenant, (target, by, reason), Timestamp::from_millis(*at_ms)))
            }
            EventSubject::Budget { .. } => Some(of_budget(destination, tenant, subject, now)),
            EventSubject::Circuit { tool, failure, since_ms, until_ms } => {
                let (since, until) = (Timestamp::from_millis(*since_ms), Timestamp::from_millis(*until_ms));
                Some(of_circuit(destination, tenant, (tool, failure), (since, until)))
            }
        })
    }

    /// A message that tests a destination.
    pub(super) fn test(destination: &NotificationDestination, tenant: &str, at: Timestamp) -> Self {
        let title = format!("Test of the destination {}", destination.name);
        let next_step =
            "No action is needed: this message is a test, from the console or from `callgate notifications test`."
                .to_owned();
        let events: Vec<&str> = destination.events.iter().map(|event| event.as_str()).collect();
        let fields = vec![("Events", events.join(", "))];
        Self { fields, ..Self::new("notification.test", (destination, tenant), at, title, next_step) }
    }

    fn new(
        kind: &'static str,
        (destination, tenant): (&NotificationDestination, &str),
        at: Timestamp,
        title: String,
        next_step: String,
    ) -> Self {
        Self {
            kind,
            tenant: tenant.to_owned(),
            at,
            title,
            fields: Vec::new(),
            arguments: None,
            next_step,
            url: format!("{}/", destination.console),
            data: json!({}),
            open_request: None,
        }
    }

    /// The whole message in a line, for lists and previews.
    pub(super) fn in_one_line(&self) -> String {
        let fields: Vec<String> = self.fields.iter().map(|(label, value)| format!("{label}: {value}")).collect();
        format!("{}. {}. {}", self.title, fields.join(", "), self.next_step)
    }
}

fn of_request(
    gate: &Gate,
    destination: &NotificationDestination,
    (id, tenant): (TenantId, &str),
    event: NotificationEvent,
    question: &Question,
) -> Option<NotificationMessage> {
    let (now, route) = (gate.store.now(), gate.approvals.route(id, question));
    let (risk, because) = gate.approvals.risk(id, question);
    let state = question.state(now);
    let is_current = match event {
        NotificationEvent::Requested | NotificationEvent::Escalated => state == QuestionState::Pending,
        NotificationEvent::Expired => state == QuestionState::Expired,
        _ => question.resolution.is_some(),
    };
    if !is_current {
        return None;
    }
    let (kind, title, next_step) = wording(event, question);
    let mut message = NotificationMessage::new(kind, (destination, tenant), question.asked_at, title, next_step);
    let approval: String = url::form_urlencoded::byte_serialize(question.approval_id.as_bytes()).collect();
    message.url = format!("{}/approvals/{approval}", destination.console);
    message.fields = request_fields(question, destination.arguments, now);
    message.fields.insert(1, ("Risk", describe_risk(risk, &because)));
    if state == QuestionState::Pending {
        message.fields.push(("Approvers", route.describe_approvers()));
        message.open_request = Some(question.approval_id.clone());
    }
    message.data = json!({
        "approval_id": question.approval_id,
        "session_id": question.session,
        "agent_id": question.agent,
        "call_id": question.call_id,
        "tool": question.tool,
        "risk": risk.as_str(),
        "risk_reasons": because,
        "group": route.group,
        "escalate_group": route.escalation.map(|escalation| escalation.group),
        "required_approvals": route.people,
        "args_digest": hex::encode(question.args_digest.0),
        "policy_version": question.policy,
        "create_time": question.asked_at.to_string(),
        "expire_time": question.expires_at.to_string(),
        "state": state.as_str(),
        "resolved_by": question.resolution.as_ref().map(|resolution| &resolution.by),
    });
    if destination.arguments {
        message.data["arguments_json"] = question.arguments.as_str().into();
        message.data["justification"] = question.justification.as_deref().into();
        message.arguments = Some(show_arguments(&question.arguments));
    }
    Some(message)
}

/// Kind, title and next step of a message about an approval request.
fn wording(event: NotificationEvent, question: &Question) -> (&'static str, String, String) {
    let tool = plain(&question.tool);
    match event {
        NotificationEvent::Requested => (
            "approval.requested",
            format!("Approval requested: {tool}"),
            "Approve or deny the call before the time is over. Without an answer it is refused.".to_owned(),
        ),
        NotificationEvent::Escalated => (
            "approval.escalated",
            format!("Approval escalated: {tool}"),
            "Nobody has answered in time, so a second group may answer now. Approve or deny the call.".to_owned(),
        ),
        NotificationEvent::Expired => (
            "approval.expired",
            format!("Approval request expired: {tool}"),
            "The call was refused. To allow it, have the agent request it again.".to_owned(),
        ),
        _ => {
            let resolution = question.resolution.as_ref();
            let answer = resolution.map_or("closed", |one| match one.state {
                QuestionState::Edited => "approved with other arguments",
                state => state.as_str(),
            });
            ("approval.decided", format!("Call {answer}: {tool}"), "No action is needed.".to_owned())
        }
    }
}

fn request_fields(question: &Question, with_texts: bool, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut fields = vec![("Tool", plain(&question.tool))];
    if let Some(agent) = &question.agent {
        fields.push(("Agent", plain(agent)));
    }
    fields.push(("Session", plain(&question.session)));
    if let Some(finding) = question.findings.iter().find(|finding| finding.enforced) {
        // The texts of rules may quote arguments.
        let text = finding.for_people.as_ref().unwrap_or(&finding.message);
        let text = if with_texts { format!(": {}", clip(text, TEXT_MAX)) } else { String::new() };
        fields.push(("Reason", format!("{}{text}", finding.reason.as_str())));
    }
    if let Some(justification) = question.justification.as_ref().filter(|_| with_texts) {
        fields.push(("Justification of the agent", clip(justification, TEXT_MAX)));
    }
    match &question.resolution {
        Some(Resolution { state, by, reason, .. }) => {
            let verb = if *state == QuestionState::Withdrawn { "Withdrawn by" } else { "Answered by" };
            fields.push((verb, plain(by)));
            fields.extend(reason.as_ref().filter(|_| with_texts).map(|why| ("Reason given", clip(why, TEXT_MAX))));
        }
        None if now < question.expires_at => {
            fields.extend(question.seconded_by.first().map(|by| ("Approved so far by", plain(by))));
            let left = wait_in_words(question.expires_at.since_ms(now));
            fields.push(("Time left", format!("{left}, until {}", question.expires_at)));
        }
        None => fields.push(("Expired", question.expires_at.to_string())),
    }
    fields
}

fn describe_risk(risk: RiskLevel, because: &[&str]) -> String {
    let why = because.first().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{}{why}", risk.as_str().to_lowercase())
}

fn of_halt(
    destination: &NotificationDestination,
    tenant: &str,
    (target, by, reason): (&str, &str, Option<String>),
    at: Timestamp,
) -> NotificationMessage {
    let target = plain(target);
    let command = if target == "everything" { "all" } else { &target };
    let next_step = format!("Calls are refused until the halt is lifted: callgate sessions resume {command}");
    let title = format!("Halted: {target}");
    let mut message = NotificationMessage::new("halt.started", (destination, tenant), at, title, next_step);
    message.fields = vec![("Halted by", plain(by)), ("Time", at.to_string())];
    message.data = json!({ "target": target, "by": by, "reason": reason });
    message.fields.extend(reason.map(|reason| ("Reason", clip(&reason, TEXT_MAX))));
    message
}

fn of_budget(
    destination: &NotificationDestination,
    tenant: &str,
    subject: &EventSubject,
    at: Timestamp,
) -> NotificationMessage {
    let EventSubject::Budget { scope, name, dimension, used, limit, percent, .. } = subject else {
        return NotificationMessage::test(destination, tenant, at);
    };
    let whose = if name.is_empty() { format!("tenant {tenant}") } else { format!("{scope} {}", plain(name)) };
    let next_step = match percent {
        100 => "Further calls are refused until the next UTC day. Raise the limit in the policy to go on.",
        _ => "Calls are refused at 100 %. Raise the limit in the policy, or halt the agent.",
    };
    let title = format!("Budget at {percent} %: {whose}");
    let mut message =
        NotificationMessage::new("budget.threshold", (destination, tenant), at, title, next_step.to_owned());
    message.fields = vec![("Limit", dimension.clone()), ("Used", format!("{used} of {limit} a day"))];
    message.data = json!({
        "scope": scope, "name": name, "dimension": dimension, "used": used, "limit": limit, "percent": percent,
    });
    message
}

fn of_circuit(
    destination: &NotificationDestination,
    tenant: &str,
    (tool, failure): (&str, &str),
    (since, until): (Timestamp, Timestamp),
) -> NotificationMessage {
    let title = format!("Circuit breaker open: {}", plain(tool));
    let next_step = "Calls of the tool wait until it recovers. Check the service behind it.".to_owned();
    let mut message =
        NotificationMessage::new("circuit_breaker.opened", (destination, tenant), since, title, next_step);
    message.url = format!("{}/tools", destination.console);
    message.fields =
        vec![("Failure", failure.to_owned()), ("Failing since", since.to_string()), ("Open until", until.to_string())];
    message.data = json!({
        "tool": tool, "failure": failure, "failing_since": since.to_string(), "open_until": until.to_string(),
    });
    message
}

/// Arguments with hidden characters made visible, and cut.
fn show_arguments(text: &str) -> ShownArguments {
    let is_whole = text.chars().nth(ARGUMENTS_MAX).is_none();
    ShownArguments { text: clip(text, ARGUMENTS_MAX), is_whole }
}

/// At most so many characters, with hidden ones made visible.
fn clip(text: &str, max: usize) -> String {
    let visible = |char: char| if is_visible(char) { char } else { char::REPLACEMENT_CHARACTER };
    let mut shown: String = text.chars().take(max).map(visible).collect();
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}

/// A name that a model may have chosen.
fn plain(name: &str) -> String {
    let is_markup = |char: char| "<>&*~`|@\n\t".contains(char) || !is_visible(char);
    name.chars().take(NAME_MAX).map(|char| if is_markup(char) { '·' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::destinations::tests::filtered;

    #[test]
    fn names_are_no_markup_and_mention_nobody() {
        assert_eq!(plain("refund_order"), "refund_order");
        assert_eq!(plain("<!channel> *x* @here\u{202e}\n"), "·!channel· ·x· ·here··");
        assert_eq!(plain(&"x".repeat(500)).len(), NAME_MAX);
    }

    #[test]
    fn arguments_are_cut_and_hidden_characters_are_shown() {
        let shown = show_arguments("{\"to\":\"a\u{202e}b\"}");
        assert_eq!(shown, ShownArguments { text: "{\"to\":\"a\u{fffd}b\"}".to_owned(), is_whole: true });
        let shown = show_arguments(&"x".repeat(ARGUMENTS_MAX + 1));
        assert!(!shown.is_whole && shown.text.ends_with("x…"));
        assert!(show_arguments(&"x".repeat(ARGUMENTS_MAX)).is_whole);
    }

    #[test]
    fn halt_names_the_command_that_lifts_it() {
        let (destination, at) = (filtered(&["*"], &[]), Timestamp::from_millis(0));
        let of = |target: &str| of_halt(&destination, "default", (target, "ann", None), at).next_step;
        assert!(of("everything").ends_with("callgate sessions resume all"));
        assert!(of("tool pay").ends_with("callgate sessions resume tool pay"));
    }

    #[test]
    fn budget_tells_its_owner_and_threshold() {
        let (destination, at) = (filtered(&["*"], &[]), Timestamp::from_millis(0));
        let subject = |name: &str, percent| EventSubject::Budget {
            scope: if name.is_empty() { "tenant" } else { "agent" }.to_owned(),
            name: name.to_owned(),
            dimension: "max_total_cost_usd".to_owned(),
            used: "8 USD".to_owned(),
            limit: "10 USD".to_owned(),
            percent,
            day: 0,
        };
        let message = of_budget(&destination, "acme", &subject("", 80), at);
        assert_eq!(message.title, "Budget at 80 %: tenant acme");
        let message = of_budget(&destination, "acme", &subject("desk", 100), at);
        assert_eq!((message.title.as_str(), message.kind), ("Budget at 100 %: agent desk", "budget.threshold"));
        assert!(message.next_step.starts_with("Further calls are refused until"), "{}", message.next_step);
    }
}
