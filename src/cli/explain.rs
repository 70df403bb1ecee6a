//! `callgate explain`: why a stored call was judged as it was, rule by rule, as it was stored. What the rules looked at
//! is made anew from the calls of its tree before it.

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, bail};
use clap::Args;

use super::{
    approvals,
    recorded::{row, stored},
    remote::{Remote, asked, at},
    replay::judge::{outcome, request},
};
use crate::{
    domain::{
        call::Proposal,
        ids::DEFAULT_TENANT,
        previous::Past,
        time::{Timestamp, wait_in_words},
        tree::CallTree,
    },
    engine::world::World,
    grpc::v1::{
        self, ExportCallsResponse, GetPolicyRequest, ListApprovalsRequest,
        approval_service_client::ApprovalServiceClient, policy_service_client::PolicyServiceClient,
    },
    policy::{self, Policy},
    rules::{Mode, RULES},
};

/// Questions of one session that are looked through, the newest first.
const QUESTIONS_MAX: u32 = 500;

/// What `callgate explain` takes.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The call
    call_id: String,
    /// Its session, when other sessions have a call of that id too
    #[arg(long)]
    session: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

/// Runs it.
pub(super) async fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let all = stored(&args.remote, 0, args.session.as_deref().unwrap_or_default()).await?;
    let is_it = |call: &&ExportCallsResponse| {
        call.call_id == args.call_id && args.session.as_ref().is_none_or(|session| call.session_id == *session)
    };
    let found: Vec<&ExportCallsResponse> = all.iter().filter(is_it).collect();
    let call = match found.as_slice() {
        [call] => *call,
        [] => {
            let of = args.session.as_ref().map(|session| format!(" of session {session}")).unwrap_or_default();
            bail!("no stored call{of} has the id {}", args.call_id)
        }
        several => {
            let sessions: Vec<&str> = several.iter().map(|call| call.session_id.as_str()).collect();
            bail!("several sessions have a call {}: say which with --session: {}", args.call_id, sessions.join(", "))
        }
    };
    let before: Vec<&ExportCallsResponse> =
        all.iter().filter(|other| other.root_session_id == call.root_session_id && other.seq < call.seq).collect();
    let policy = judged_by(&args.remote, &call.policy_version).await?;
    told(call);
    question(&args.remote, call).await?;
    match again(&policy, &before, call) {
        Ok((world, proposal, now)) => saw(world.tree(&proposal.request.session), &proposal, now),
        Err(why) => anstream::println!("\nWhat the rules saw cannot be shown: {why:#}."),
    }
    let bold = Style::new().bold();
    anstream::println!("\n{bold}rules, in their order{bold:#}");
    for (rule, _) in RULES {
        let finding = call.findings.iter().find(|finding| finding.rule == *rule);
        said(rule, finding, policy.rules.mode(rule));
    }
    Ok(())
}

async fn judged_by(remote: &Remote, version: &str) -> anyhow::Result<Policy> {
    if version == "default" {
        return Ok(Policy::default());
    }
    let mut client = PolicyServiceClient::new(remote.connect().await?);
    let found = asked(client.get_policy(GetPolicyRequest { hash: version.to_owned() }).await)?;
    policy::compile(&found.text).ok().with_context(|| format!("policy {version} cannot be read by this build"))
}

fn told(call: &ExportCallsResponse) {
    let bold = Style::new().bold();
    anstream::println!("{bold}{}{bold:#} {} {} of session {}", call.decision, call.tool, call.call_id, call.session_id);
    anstream::println!("  judged     {} by policy {}", at(call.at_unix_ms), call.policy_version);
    anstream::println!("  arguments  {}", call.arguments_json);
    if !call.justification.is_empty() {
        anstream::println!("  because    {}", call.justification);
    }
    if !call.reason.is_empty() {
        anstream::println!("  reason     {}", call.reason);
        anstream::println!("  told       {}", call.message);
    }
}

/// What people were asked about it: an approved call is let through as if no rule had asked.
async fn question(remote: &Remote, call: &ExportCallsResponse) -> anyhow::Result<()> {
    let mut client = ApprovalServiceClient::new(remote.connect().await?);
    let session_id = call.session_id.clone();
    let request = ListApprovalsRequest { session_id, page_size: QUESTIONS_MAX, ..ListApprovalsRequest::default() };
    let all = asked(client.list_approvals(request).await)?.approvals;
    for approval in all.iter().filter(|approval| approval.call_id == call.call_id) {
        let (state, style) = approvals::state(approval);
        anstream::print!("  question   {} {style}{state}{style:#}", approval.approval_id);
        if approval.resolved_unix_ms > 0 {
            anstream::print!(" {} by {}", at(approval.resolved_unix_ms), approval.resolved_by);
        }
        let why = &approval.resolution_reason;
        anstream::println!("{}", if why.is_empty() { String::new() } else { format!(": {why}") });
    }
    Ok(())
}

/// The world before it, and what it proposed.
fn again(
    policy: &Policy,
    before: &[&ExportCallsResponse],
    call: &ExportCallsResponse,
) -> anyhow::Result<(World, Proposal, Timestamp)> {
    let mut world = World::new(DEFAULT_TENANT);
    let mut ran = policy.clone();
    ran.mode = Mode::Shadow;
    for earlier in before {
        let Some(row) = row(earlier) else { continue };
        let Some(now) = row.at else { continue };
        // What was refused then did not run, and is seen as refused.
        let by = if earlier.decision == "ALLOW" { &ran } else { policy };
        let Ok((verdict, _)) = world.evaluate(by, &by.propose(request(&row)), None, now) else { continue };
        if let Some(report) = outcome(&row).filter(|_| verdict.permit.is_some()) {
            let _ = world.record(by, &report, now);
        }
    }
    let it = row(call).context("its arguments were not stored as such")?;
    let proposal = policy.propose(request(&it));
    let now = it.at.context("it has no time")?;
    Ok((world, proposal, now))
}

/// What the rules looked at.
fn saw(tree: Option<&CallTree>, proposal: &Proposal, now: Timestamp) {
    let bold = Style::new().bold();
    anstream::println!("\n{bold}what they saw{bold:#}");
    let effect = &proposal.effect;
    let resource = effect.resource.as_ref().map_or("anything", |resource| resource.as_str());
    let declared = if proposal.declared { "declared" } else { "not declared" };
    anstream::println!("  tool       {declared}, {} on {resource}", effect.kind.as_str());
    anstream::println!("  known by   {}", proposal.fingerprint.to_hex());
    match tree.and_then(|tree| tree.previous(proposal.fingerprint, None, now)) {
        None => anstream::println!("  before     the same call was not made in this call tree"),
        Some(previous) => anstream::println!(
            "  before     {}, asked for {} earlier: {}",
            previous.call.call_id,
            wait_in_words(now.since_ms(previous.last_at)),
            stood(&previous.past)
        ),
    }
    if let Some(session) = tree.and_then(|tree| tree.sessions.get(&proposal.request.session)) {
        let run = &session.run;
        let phase = session.phase.as_deref().unwrap_or("none");
        anstream::println!("  run        {} steps, {} calls; phase {phase}", run.spent.steps, run.spent.calls);
    }
}

fn stood(past: &Past) -> &'static str {
    match past {
        Past::Held(_) => "it waited for a person",
        Past::InFlight => "it was running",
        Past::Unknown => "it may have happened",
        Past::Succeeded => "it had succeeded",
        Past::Failed(_) => "it had failed",
        Past::Cancelled => "it had been called off",
    }
}

fn said(rule: &str, finding: Option<&v1::Finding>, mode: Mode) {
    let shadowed = if mode == Mode::Shadow { " (shadowed)" } else { "" };
    match finding {
        None if mode == Mode::Off => anstream::println!("  {rule:<16} off"),
        None => anstream::println!("  {rule:<16} nothing to say{shadowed}"),
        Some(finding) => {
            let decision = finding.decision().as_str_name().trim_start_matches("DECISION_");
            let colour = if decision == "ALLOW" { AnsiColor::Yellow } else { AnsiColor::Red };
            let style = Style::new().fg_color(Some(colour.into()));
            let count = finding.count.map(|count| format!(" at {count}")).unwrap_or_default();
            anstream::println!(
                "  {rule:<16} {style}{} {}{style:#}{count}{shadowed}: {}",
                decision,
                finding.reason,
                finding.message
            );
        }
    }
}
