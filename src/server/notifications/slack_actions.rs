//! `POST /notifications/slack`: the buttons of Slack messages. A request is Slack's if its signature and time hold. The
//! file of `--notifications` maps users of Slack to approvers; roles, groups and rules of an answer are the same as
//! anywhere else.

use std::{path::Path, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::time::timeout;

use super::{
    destinations::{Channel, Destinations, NotificationDestination},
    events::{EventSubject, NotificationEvent},
    message::NotificationMessage,
    slack::{self, APPROVE, Approver, ButtonValue, DENY, SlackButtons},
};
use crate::{
    gate::{ApproverReply, Gate, GateError},
    web::{SLACK_ACTIONS, guard_headers},
};
use callgate_core::domain::{
    audit::Actor, identity::CredentialId, ids::TenantId, inbox::QuestionState, rejection::CommandRejection,
};
use callgate_net::clock::{Clock, LogLimiter};

/// Bytes of a request: Slack sends the message with it.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// Longest time for a request to come in.
const RECEIVE: Duration = Duration::from_secs(5);
/// Difference between the time of a request and the server's, beyond which it is rejected.
const SKEW_MAX_S: u64 = 300;

/// State of the route.
#[derive(Clone)]
struct SlackActions {
    destinations: Arc<[Arc<NotificationDestination>]>,
    gate: Arc<Gate>,
    rejected: Arc<Mutex<LogLimiter>>,
}

/// The route; none without a destination that has buttons.
pub(super) fn router(destinations: &Destinations, gate: &Arc<Gate>) -> Option<Router> {
    let own = destinations.0.iter().filter(|one| buttons(one).is_some()).cloned();
    let destinations: Arc<[Arc<NotificationDestination>]> = own.collect();
    let state = SlackActions { destinations, gate: Arc::clone(gate), rejected: Arc::default() };
    (!state.destinations.is_empty()).then(|| Router::new().route(SLACK_ACTIONS, post(receive)).with_state(state))
}

fn buttons(destination: &NotificationDestination) -> Option<&SlackButtons> {
    match &destination.channel {
        Channel::Slack(slack) => slack.buttons.as_ref(),
        _ => None,
    }
}

/// An interaction, as far as it is read.
#[derive(Debug, Deserialize)]
struct Interaction {
    #[serde(rename = "type")]
    kind: String,
    user: SlackUser,
    response_url: Option<String>,
    #[serde(default)]
    actions: Vec<SlackAction>,
}

#[derive(Debug, Deserialize)]
struct SlackUser {
    id: String,
}

#[derive(Debug, Deserialize)]
struct SlackAction {
    #[serde(default)]
    action_id: String,
    #[serde(default)]
    value: String,
}

/// Slack waits three seconds for an answer. So the request is acknowledged once it is verified, and the result is sent
/// to its `response_url`.
async fn receive(State(state): State<SlackActions>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let read = timeout(RECEIVE, Limited::new(body, REQUEST_BYTES_MAX).collect()).await;
    let Ok(Ok(body)) = read else {
        return answer(StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than 256 KiB, or did not come in\n");
    };
    let (body, now_s) = (body.to_bytes(), state.gate.store.now().as_millis() / 1_000);
    let is_signed = |one: &&Arc<NotificationDestination>| {
        buttons(one).is_some_and(|buttons| is_signed(&buttons.signing_secret, &head.headers, &body, now_s))
    };
    let signed: Vec<Arc<NotificationDestination>> = state.destinations.iter().filter(is_signed).cloned().collect();
    if signed.is_empty() {
        if let Some(requests) = state.rejected.lock().count_event(&Clock::System) {
            tracing::warn!(requests, "requests to {SLACK_ACTIONS} were rejected: signature or time does not hold");
        }
        return answer(StatusCode::UNAUTHORIZED, "the signature or the time of the request does not hold\n");
    }
    let Some(interaction) = interaction(&body) else {
        return answer(StatusCode::BAD_REQUEST, "the request has no payload of an interaction\n");
    };
    let action = interaction.actions.into_iter().next().filter(|_| interaction.kind == "block_actions");
    let (Some(action), Some(respond_to)) = (action, interaction.response_url) else {
        return answer(StatusCode::OK, "");
    };
    let approve = match action.action_id.as_str() {
        APPROVE => true,
        DENY => false,
        _ => return answer(StatusCode::OK, ""),
    };
    let Ok(value) = serde_json::from_str::<ButtonValue>(&action.value) else {
        return answer(StatusCode::BAD_REQUEST, "the button has no value of callgate's\n");
    };
    let Some(destination) = signed.into_iter().find(|one| one.name == value.destination) else {
        return answer(StatusCode::FORBIDDEN, "the button is of a destination with another secret\n");
    };
    tokio::spawn(async move {
        let press = Press { gate: state.gate, destination, user: interaction.user.id, approve, value };
        let payload = press.result().await;
        if let Err(problem) = slack::post(&respond_to, None::<&Path>, &payload).await {
            tracing::warn!("Slack did not take the result of a button: {problem}");
        }
    });
    answer(StatusCode::OK, "")
}

fn answer(code: StatusCode, text: &'static str) -> Response {
    (code, guard_headers(), text).into_response()
}

/// True for a request that Slack signed with the secret, within the allowed time.
fn is_signed(secret: &[u8], headers: &HeaderMap, body: &[u8], now_s: i64) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(at), Some(signature)) = (header("x-slack-request-timestamp"), header("x-slack-signature")) else {
        return false;
    };
    let is_in_time = at.parse::<i64>().is_ok_and(|at| now_s.abs_diff(at) <= SKEW_MAX_S);
    let signature = signature.strip_prefix("v0=").and_then(|text| hex::decode(text).ok());
    let (Some(signature), Ok(mut mac)) = (signature, Hmac::<Sha256>::new_from_slice(secret)) else { return false };
    mac.update(format!("v0:{at}:").as_bytes());
    mac.update(body);
    // In constant time.
    is_in_time && mac.verify_slice(&signature).is_ok()
}

/// The interaction in a form.
fn interaction(body: &[u8]) -> Option<Interaction> {
    let (_, payload) = url::form_urlencoded::parse(body).find(|(name, _)| name == "payload")?;
    serde_json::from_str(&payload).ok()
}

/// A pressed button.
struct Press {
    gate: Arc<Gate>,
    destination: Arc<NotificationDestination>,
    user: String,
    approve: bool,
    value: ButtonValue,
}

impl Press {
    /// Answers the request; returns the payload for Slack.
    async fn result(&self) -> Value {
        let Some(approver) = buttons(&self.destination).and_then(|buttons| buttons.approvers.get(&self.user)) else {
            tracing::warn!(user = self.user, destination = self.destination.name, "a user of Slack is no approver");
            return to_user(&format!(
                "You may not answer approval requests here: {} is not among the approvers of {}. Ask an administrator \
                 of callgate to add it.",
                self.user, self.destination.name
            ));
        };
        let name = self.value.tenant.as_str();
        let tenant = self.gate.server.tenants().into_iter().find(|tenant| tenant.name == name);
        let Some(tenant) = tenant.filter(|tenant| self.destination.is_of(&tenant.name)) else {
            return to_user("This approval request is of a tenant that is not notified here any more.");
        };
        match self.resolve(tenant.id, approver).await {
            Ok(event) => self.message(tenant.id, event).await,
            Err(problem) => to_user(&problem),
        }
    }

    /// The event that the message is shown as from now on; or the reason against the answer.
    async fn resolve(&self, tenant: TenantId, approver: &Approver) -> Result<NotificationEvent, String> {
        let (approvals, id) = (&self.gate.approvals, &self.value.approval_id);
        let unavailable = |error| format!("The answer was not stored: {error}. Press the button again in a moment.");
        self.gate.server.admits(tenant).map_err(unavailable)?;
        let question = approvals.question(tenant, id).await.map_err(unavailable)?;
        if self.approve && question.is_some_and(|question| question.edited.is_some()) {
            return Err("Another approver has edited the arguments. Answer in the console, which shows them.".into());
        }
        let credential = CredentialId::Slack(self.user.clone());
        let by = Actor { name: approver.name.clone(), credential, from: None, groups: approver.groups.clone() };
        let (approval_id, approve) = (id.clone(), self.approve);
        let reply = ApproverReply { approval_id, approve, by, reason: None, clears: None, edited: None };
        match Box::pin(approvals.resolve(tenant, &reply)).await {
            Ok(question) if question.state(self.gate.store.now()) == QuestionState::Pending => {
                Ok(NotificationEvent::Requested)
            }
            Ok(_) => Ok(NotificationEvent::Decided),
            Err(GateError::Rejected(rejection)) => Err(describe_rejection(&rejection)),
            Err(GateError::NoAnswer(error)) => Err(unavailable(error)),
        }
    }

    /// The message in its new state.
    async fn message(&self, tenant: TenantId, event: NotificationEvent) -> Value {
        let subject = EventSubject::Approval { approval_id: self.value.approval_id.clone() };
        let of = (tenant, self.value.tenant.as_str());
        let Ok(Some(message)) = NotificationMessage::of(&self.gate, &self.destination, of, (event, &subject)).await
        else {
            return to_user("The answer was stored.");
        };
        let mut payload = slack::payload(&self.destination, true, &message);
        payload["replace_original"] = true.into();
        payload
    }
}

/// A text that the user alone sees.
fn to_user(text: &str) -> Value {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json!({ "response_type": "ephemeral", "replace_original": false, "text": text })
}

/// The reason against an answer, with the next step.
fn describe_rejection(rejection: &CommandRejection) -> String {
    match rejection {
        CommandRejection::UnknownApproval => "There is no such approval request any more.".to_owned(),
        CommandRejection::AlreadyAnswered { approved, by, .. } => {
            let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            format!("The request was {} already{by}.", if *approved { "approved" } else { "denied" })
        }
        CommandRejection::Withdrawn { .. } => "The requester has withdrawn the request.".to_owned(),
        CommandRejection::ApprovalExpired => {
            "The request has expired, and the call was refused. Have the agent request it again.".to_owned()
        }
        CommandRejection::SelfApproval => "A requester cannot answer its own request.".to_owned(),
        CommandRejection::NotInGroup { groups, .. } => {
            format!("The request is for approvers of the group {}.", groups.join(" or "))
        }
        CommandRejection::SaidBefore => "You have approved it already. Another approver has to approve it too.".into(),
        CommandRejection::ReasonMissing => {
            "The policy requires a reason for a denial. Deny it in the console, with a reason.".to_owned()
        }
        _ => "The request cannot be answered here. Open it in the console.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(at: &str, signature: &str) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).expect("a header");
        let all = [("x-slack-request-timestamp", value(at)), ("x-slack-signature", value(signature))];
        all.into_iter().map(|(name, value)| (http::HeaderName::from_static(name), value)).collect()
    }

    #[test]
    fn signature_equals_that_of_slacks_example() {
        let secret = b"8f742231b10e8888abcd99yyyzzz85a5";
        let body = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
            channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=\
            https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=\
            398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
        let (at, signed) = ("1531420618", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503");
        assert!(is_signed(secret, &headers(at, signed), body, 1_531_420_618));
        assert!(is_signed(secret, &headers(at, signed), body, 1_531_420_918), "five minutes later");
        assert!(!is_signed(secret, &headers(at, signed), body, 1_531_420_919), "later than that");
        assert!(!is_signed(secret, &headers(at, signed), body, 1_531_420_317), "before its time");
        assert!(!is_signed(secret, &headers("1531420619", signed), body, 1_531_420_618), "its time is signed");
        assert!(!is_signed(b"another", &headers(at, signed), body, 1_531_420_618));
        assert!(!is_signed(secret, &headers(at, signed), b"token=x", 1_531_420_618));
        assert!(!is_signed(secret, &headers(at, &signed[3..]), body, 1_531_420_618), "of another version");
        assert!(!is_signed(secret, &HeaderMap::new(), body, 1_531_420_618));
    }
}
