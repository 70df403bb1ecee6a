//! `callgate explain`: explanation of a stored call's judgment, rule by rule.

use anstyle::{AnsiColor, Style};
use anyhow::bail;
use clap::{Args, builder::NonEmptyStringValueParser};
use serde_json::{Value, json};

use super::{approvals, recorded::fetch_calls, server_args::ReadArgs};
use callgate_client::{
    json::{self},
    remote::{Remote, at, into_response, member_name},
};
use callgate_core::{
    domain::{outcome::Repeat, time::wait_in_words},
    rules::budget,
};
use callgate_proto::{
    time::millis,
    v1::{
        self, Approval, ExplainCallRequest, ExplainedRule, ExportCallsRequest, ExportCallsResponse, FailureKind,
        ListApprovalsRequest, OutcomeStatus, approval_service_client::ApprovalServiceClient,
        session_service_client::SessionServiceClient,
    },
};

/// Maximum number of approval requests searched per session, newest first.
const QUESTIONS_MAX: u32 = 500;

/// Maximum number of listed sessions with the same call id.
const SESSIONS_MAX: usize = 10;
const DIM: Style = Style::new().dimmed();

/// Arguments of `callgate explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The call's id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    call_id: String,
    /// The session's id, when several sessions have a call of that id
    #[arg(long)]
    session: Option<String>,
    #[command(flatten)]
    server: ReadArgs,
}

/// Runs it.
pub(super) async fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let call = find_call(&args).await?;
    let questions = questions(&args.server.remote, &call).await?;
    let mut client = SessionServiceClient::new(args.server.remote.connect().await?);
    let (session_id, call_id) = (call.session_id.clone(), call.call_id.clone());
    let explained = into_response(client.explain_call(ExplainCallRequest { session_id, call_id }).await)?;
    if args.server.form.json {
        let rules: Vec<Value> = explained.rules.iter().map(rule_as_json).collect();
        let approvals = questions.iter().map(json::value).collect::<anyhow::Result<Vec<_>>>()?;
        outln!("{}", json!({"call": json::value(&call)?, "approvals": approvals, "rules": rules}));
        return Ok(());
    }
    print_call(&call);
    questions.iter().for_each(question);
    let bold = Style::new().bold();
    if explained.inputs_missing.is_empty() {
        outln!("\n{bold}facts{bold:#}");
        explained.inputs.iter().for_each(|fact| outln!("  {:<10} {}", fact.name, fact.text));
    } else {
        outln!("\nThe facts cannot be shown: {}.", explained.inputs_missing);
    }
    outln!("\n{bold}rules, in order{bold:#}");
    let width = explained.rules.iter().map(|one| one.rule.len()).max().unwrap_or_default();
    for one in &explained.rules {
        match &one.finding {
            Some(finding) => print_finding(&one.rule, width, finding),
            None if one.mode == "off" => outln!("  {:<width$} off", one.rule),
            None => {
                let shadowed = if one.mode == "shadow" { " (shadowed)" } else { "" };
                outln!("  {:<width$} {DIM}{}{shadowed}{DIM:#}", one.rule, one.no_finding_reason);
            }
        }
    }
    Ok(())
}

/// A rule: mode, and finding or explanation.
fn rule_as_json(one: &ExplainedRule) -> Value {
    let said = one.finding.as_ref().map(|finding| &finding.message);
    let silent = said.is_none().then_some(&one.no_finding_reason);
    json!({"rule": one.rule, "mode": one.mode, "message": said, "noFindingReason": silent})
}

/// The unique call.
async fn find_call(args: &ExplainArgs) -> anyhow::Result<ExportCallsResponse> {
    let session_id = args.session.clone().unwrap_or_default();
    let wanted = ExportCallsRequest { session_id, call_id: args.call_id.clone(), start_time: None };
    let mut found = fetch_calls(&args.server.remote, wanted).await?;
    // A session is looked for with its whole call tree.
    found.retain(|call| args.session.as_ref().is_none_or(|session| call.session_id == *session));
    match found.len() {
        0 => {
            let of = args.session.as_ref().map(|session| format!(" of session {session}")).unwrap_or_default();
            bail!("no stored call{of} has the id {}", args.call_id)
        }
        1 => Ok(found.remove(0)),
        several => {
            let sessions: Vec<&str> = found.iter().take(SESSIONS_MAX).map(|call| call.session_id.as_str()).collect();
            let rest = several - sessions.len();
            let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
            let (id, sessions) = (&args.call_id, sessions.join(", "));
            bail!("several sessions have a call {id}: choose one with --session: {sessions}{more}")
        }
    }
}

fn decision(call: &ExportCallsResponse) -> &'static str {
    call.decision().as_str_name().trim_start_matches("DECISION_")
}

fn print_call(call: &ExportCallsResponse) {
    let bold = Style::new().bold();
    outln!("{bold}{}{bold:#} {} {} of session {}", decision(call), call.tool, call.call_id, call.session_id);
    outln!("  judged     {} by policy {}", at(call.judge_time.as_ref()), call.policy_version);
    outln!("  arguments  {}", call.arguments_json);
    if !call.justification.is_empty() {
        outln!("  purpose    {}", call.justification);
    }
    for (what, trace) in [("trace", &call.trace_id), ("reported", &call.report_trace_id)] {
        if !trace.is_empty() {
            outln!("  {what:<10} {}{trace}", if what == "trace" { "" } else { "in trace " });
        }
    }
    if call.status() != OutcomeStatus::Unspecified {
        outln!("  outcome    {}", outcome(call));
    }
    if !call.reason.is_empty() {
        outln!("  reason     {}", call.reason);
        outln!("  message    {}", call.message);
    }
}

/// The outcome, and for a failure the party that may repeat it.
fn outcome(call: &ExportCallsResponse) -> String {
    let status = member_name(call.status().as_str_name(), "OUTCOME_STATUS_");
    let kind = match call.failure() {
        FailureKind::Unspecified => String::new(),
        kind => format!(" ({})", member_name(kind.as_str_name(), "FAILURE_KIND_")),
    };
    let wait = || wait_in_words(millis(call.retry_after.as_ref()));
    let advised = Repeat::from_name(&member_name(call.repeat().as_str_name(), "REPEAT_"));
    let advised = advised.map(|repeat| format!(": {}", repeat.describe(&wait())));
    format!("{status}{kind}{}", advised.unwrap_or_default())
}

/// Its approval requests.
async fn questions(remote: &Remote, call: &ExportCallsResponse) -> anyhow::Result<Vec<Approval>> {
    let mut client = ApprovalServiceClient::new(remote.connect().await?);
    let session_id = call.session_id.clone();
    let request = ListApprovalsRequest { session_id, page_size: QUESTIONS_MAX, ..ListApprovalsRequest::default() };
    let all = into_response(client.list_approvals(request).await)?.approvals;
    Ok(all.into_iter().filter(|approval| approval.call_id == call.call_id).collect())
}

fn question(approval: &Approval) {
    let (state, style) = approvals::state(approval);
    out!("  approval   {} {style}{state}{style:#}", approval.approval_id);
    if approval.resolve_time.is_some() {
        out!(" {} by {}", at(approval.resolve_time.as_ref()), approval.resolved_by);
    }
    let why = &approval.resolution_reason;
    outln!("{}", if why.is_empty() { String::new() } else { format!(": {why}") });
}

fn print_finding(rule: &str, width: usize, finding: &v1::Finding) {
    let decision = finding.decision().as_str_name().trim_start_matches("DECISION_");
    let colour = if decision == "ALLOW" { AnsiColor::Yellow } else { AnsiColor::Red };
    let style = Style::new().fg_color(Some(colour.into()));
    // A budget counts in units that its message names.
    let count = finding.count.filter(|_| rule != budget::RULE.id);
    let count = count.map(|count| format!(" at {count}")).unwrap_or_default();
    let shadowed = if finding.enforced { "" } else { " (shadowed)" };
    let (reason, message) = (&finding.reason, &finding.message);
    outln!("  {rule:<width$} {style}{decision} {reason}{style:#}{count}{shadowed}: {message}");
}
