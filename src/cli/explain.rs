//! `callgate explain`: why a stored call was judged as it was, rule by rule, as it was stored. What the rules looked at
//! is made anew from the calls of its tree before it.

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, bail};
use clap::{Args, builder::NonEmptyStringValueParser};
use serde_json::{Value, json};

use super::{
    approvals,
    json::{self, Form},
    recorded::{row, stored},
    remote::{Remote, asked, at},
};
use crate::{
    domain::{
        call::{Call, Proposal},
        effect::EffectKind,
        ids::{DEFAULT_TENANT, ToolName},
        previous::{Held, Past, Previous},
        time::{Timestamp, wait_in_words},
        tree::{CallTree, Session},
    },
    engine::Shared,
    grpc::v1::{
        self, Approval, ApprovalState, Decision, ExportCallsRequest, ExportCallsResponse, GetPolicyRequest,
        ListApprovalsRequest, approval_service_client::ApprovalServiceClient,
        policy_service_client::PolicyServiceClient,
    },
    offline::{
        judge::{outcome, request},
        world::World,
    },
    policy::{self, Policy},
    rules::{self, Asked, Context, Mode, budget, same_call},
};

/// Questions of one session that are looked through, the newest first.
const QUESTIONS_MAX: u32 = 500;

/// Sessions that are named when several have a call of that id.
const SESSIONS_MAX: usize = 10;
const DIM: Style = Style::new().dimmed();

/// What `callgate explain` takes.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The call
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    call_id: String,
    /// Its session, when other sessions have a call of that id too
    #[arg(long)]
    session: Option<String>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    remote: Remote,
}

/// Runs it.
pub(super) async fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let call = found(&args).await?;
    let tree = ExportCallsRequest { session_id: call.session_id.clone(), ..ExportCallsRequest::default() };
    let tree = stored(&args.remote, tree).await?;
    let before: Vec<&ExportCallsResponse> = tree.iter().filter(|other| other.seq < call.seq).collect();
    let policy = judged_by(&args.remote, &call.policy_version).await?;
    let questions = questions(&args.remote, &call).await?;
    let approved_by = approved_by(&questions, &call);
    let saw = Saw::again(&policy, &before, &call);
    if !args.form.json {
        told(&call);
        questions.iter().for_each(question);
        match &saw {
            Ok(saw) => saw.show(&policy, &call),
            Err(why) => outln!("\nWhat the rules saw cannot be shown: {why:#}."),
        }
        let bold = Style::new().bold();
        outln!("\n{bold}rules, in their order{bold:#}");
    }
    let name = ToolName::parse("tool", &call.tool)
        .map_err(|invalid| anyhow::anyhow!("the name of its tool {}", invalid.problem))?;
    let past = saw.as_ref().ok().map(Saw::past);
    let asked = Asked {
        tool: &call.tool,
        spec: policy.tool(&name),
        declared: policy.tools().any(|(declared, _)| declared == call.tool),
        has_schema: policy.has_schema(&name),
        approved_by: approved_by.as_deref(),
        cx: saw.as_ref().ok().zip(past.as_ref()).map(|(saw, past)| saw.context(&policy, past)),
    };
    if args.form.json {
        let rules: Vec<Value> = policy.rules.iter().map(|slot| rule_as_json(slot, &call, &asked)).collect();
        let approvals = questions.iter().map(json::value).collect::<anyhow::Result<Vec<_>>>()?;
        outln!("{}", json!({"call": json::value(&call)?, "approvals": approvals, "rules": rules}));
        return Ok(());
    }
    for slot in policy.rules.iter() {
        let rule = slot.rule.id;
        match call.findings.iter().find(|finding| finding.rule == rule) {
            Some(finding) => said(rule, finding),
            None if slot.mode == Mode::Off => outln!("  {rule:<16} off"),
            None => {
                let shadowed = if slot.mode == Mode::Shadow { " (shadowed)" } else { "" };
                outln!("  {rule:<16} {DIM}{}{shadowed}{DIM:#}", slot.silent(&asked));
            }
        }
    }
    Ok(())
}

/// A rule: what became of its findings, and what it said, or why it said nothing.
fn rule_as_json(slot: &rules::Slot, call: &ExportCallsResponse, asked: &Asked<'_>) -> Value {
    let rule = slot.rule.id;
    let found = call.findings.iter().find(|finding| finding.rule == rule);
    let mode = match slot.mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    };
    let silent = match slot.mode {
        _ if found.is_some() => None,
        Mode::Off => Some("off".to_owned()),
        _ => Some(slot.silent(asked)),
    };
    json!({"rule": rule, "mode": mode, "said": found.map(|finding| &finding.message), "silent": silent})
}

/// The one call that is meant.
async fn found(args: &ExplainArgs) -> anyhow::Result<ExportCallsResponse> {
    let session_id = args.session.clone().unwrap_or_default();
    let wanted = ExportCallsRequest { session_id, call_id: args.call_id.clone(), start_time: None };
    let mut found = stored(&args.remote, wanted).await?;
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
            bail!("several sessions have a call {id}: say which with --session: {sessions}{more}")
        }
    }
}

async fn judged_by(remote: &Remote, version: &str) -> anyhow::Result<Policy> {
    if version == "default" {
        return Ok(Policy::default());
    }
    let mut client = PolicyServiceClient::new(remote.connect().await?);
    let found = asked(client.get_policy(GetPolicyRequest { hash: version.to_owned() }).await)?;
    policy::compile(&found.text).ok().with_context(|| format!("policy {version} cannot be read by this build"))
}

fn decision(call: &ExportCallsResponse) -> &'static str {
    call.decision().as_str_name().trim_start_matches("DECISION_")
}

fn told(call: &ExportCallsResponse) {
    let bold = Style::new().bold();
    outln!("{bold}{}{bold:#} {} {} of session {}", decision(call), call.tool, call.call_id, call.session_id);
    outln!("  judged     {} by policy {}", at(call.judge_time.as_ref()), call.policy_version);
    outln!("  arguments  {}", call.arguments_json);
    if !call.justification.is_empty() {
        outln!("  because    {}", call.justification);
    }
    for (what, trace) in [("trace", &call.trace_id), ("reported", &call.report_trace_id)] {
        if !trace.is_empty() {
            outln!("  {what:<10} {}{trace}", if what == "trace" { "" } else { "in trace " });
        }
    }
    if !call.reason.is_empty() {
        outln!("  reason     {}", call.reason);
        outln!("  told       {}", call.message);
    }
}

/// What people were asked about it.
async fn questions(remote: &Remote, call: &ExportCallsResponse) -> anyhow::Result<Vec<Approval>> {
    let mut client = ApprovalServiceClient::new(remote.connect().await?);
    let session_id = call.session_id.clone();
    let request = ListApprovalsRequest { session_id, page_size: QUESTIONS_MAX, ..ListApprovalsRequest::default() };
    let all = asked(client.list_approvals(request).await)?.approvals;
    Ok(all.into_iter().filter(|approval| approval.call_id == call.call_id).collect())
}

/// Who approved it: an approved call is let through as if no rule had asked.
fn approved_by(questions: &[Approval], call: &ExportCallsResponse) -> Option<String> {
    let approved = questions.iter().rfind(|approval| approval.state() == ApprovalState::Approved);
    approved.filter(|_| call.decision() == Decision::Allow).map(|approval| approval.resolved_by.clone())
}

fn question(approval: &Approval) {
    let (state, style) = approvals::state(approval);
    out!("  question   {} {style}{state}{style:#}", approval.approval_id);
    if approval.resolve_time.is_some() {
        out!(" {} by {}", at(approval.resolve_time.as_ref()), approval.resolved_by);
    }
    let why = &approval.resolution_reason;
    outln!("{}", if why.is_empty() { String::new() } else { format!(": {why}") });
}

/// What the rules looked at: the call tree before the call, and what it proposed.
#[derive(Debug)]
struct Saw {
    tree: CallTree,
    proposal: Proposal,
    held: Option<Held>,
    previous: Option<Previous>,
    /// What crosses call trees is not told of stored calls.
    shared: Shared,
    now: Timestamp,
}

impl Saw {
    fn again(policy: &Policy, before: &[&ExportCallsResponse], call: &ExportCallsResponse) -> anyhow::Result<Self> {
        let mut world = World::new(DEFAULT_TENANT);
        let mut ran = policy.clone();
        ran.mode = Mode::Shadow;
        for earlier in before {
            let Some(row) = row(earlier) else { continue };
            let Some(now) = row.at else { continue };
            // What was refused then did not run, and is seen as refused.
            let by = if earlier.decision() == Decision::Allow { &ran } else { policy };
            let Ok((verdict, _)) = world.evaluate(by, &by.propose(request(&row)), None, now) else { continue };
            if let Some(report) = outcome(&row).filter(|_| verdict.permit.is_some()) {
                let _ = world.record(by, &report, now);
            }
        }
        let it = row(call).context("its arguments were not stored as such")?;
        let now = it.at.context("it has no time")?;
        let tree = world.trees().next().cloned();
        let tree = tree.unwrap_or_else(|| CallTree::new(DEFAULT_TENANT, it.root().clone(), now));
        let proposal = policy.propose(request(&it));
        let previous = tree.previous(proposal.fingerprint, None, now);
        let held = tree.held(&proposal, &policy.version, previous.as_ref(), now);
        Ok(Self { tree, proposal, held, previous, shared: Shared::default(), now })
    }

    fn session(&self) -> Option<&Session> {
        self.tree.sessions.get(&self.proposal.request.session).map(Box::as_ref)
    }

    fn past(&self) -> Vec<&Call> {
        rules::past(self.session(), &self.proposal.request, true, false)
    }

    fn context<'a>(&'a self, policy: &Policy, past: &'a [&'a Call]) -> Context<'a> {
        Context {
            tree: &self.tree,
            session: self.session(),
            past,
            proposal: &self.proposal,
            held: self.held.as_ref(),
            previous: self.previous.as_ref(),
            cooldown: None,
            halts: &self.shared.halts,
            self_corrections: &self.shared.profiles.self_corrections,
            counters: &self.shared.counters,
            resumes: false,
            is_new: true,
            batch: None,
            depth: 0,
            window: policy.rules.window,
            now: self.now,
        }
    }

    fn show(&self, policy: &Policy, call: &ExportCallsResponse) {
        let bold = Style::new().bold();
        outln!("\n{bold}what they saw{bold:#}");
        let effect = &self.proposal.effect;
        let resource = effect.resource.as_ref().map_or("anything", |resource| resource.as_str());
        let does = match effect.kind {
            EffectKind::Unknown => "its effect is unknown".to_owned(),
            kind => format!("{} on {resource}", kind.as_str()),
        };
        let declared = if self.proposal.declared { "declared" } else { "not declared" };
        outln!("  tool       {declared}, {does}");
        outln!("  known by   {}", self.proposal.fingerprint.to_hex());
        match &self.previous {
            None if call.findings.iter().any(|finding| finding.rule == same_call::RULE.id) => {
                outln!("  before     not in this call tree under another call_id; same_call says below what it found");
            }
            None => outln!("  before     the same call was not made in this call tree"),
            Some(previous) => outln!(
                "  before     {}, asked for {} earlier: {}",
                previous.call.call_id,
                wait_in_words(self.now.since_ms(previous.last_at)),
                stood(&previous.past)
            ),
        }
        match self.context(policy, &[]).run() {
            None => outln!("  run        it is the first of its run"),
            Some(run) => {
                let (judged, ran) = (run.spent.steps, run.spent.calls);
                outln!("  run        {judged} judged before it, {ran} of them let through");
            }
        }
    }
}

fn stood(past: &Past) -> &'static str {
    match past {
        Past::InFlight => "it was running",
        Past::Unknown => "it may have happened",
        Past::Succeeded => "it had succeeded",
        Past::Failed(_) => "it had failed",
        Past::Cancelled => "it had been called off",
    }
}

fn said(rule: &str, finding: &v1::Finding) {
    let decision = finding.decision().as_str_name().trim_start_matches("DECISION_");
    let colour = if decision == "ALLOW" { AnsiColor::Yellow } else { AnsiColor::Red };
    let style = Style::new().fg_color(Some(colour.into()));
    // A budget counts in units that its message names.
    let count = finding.count.filter(|_| rule != budget::RULE.id);
    let count = count.map(|count| format!(" at {count}")).unwrap_or_default();
    let shadowed = if finding.enforced { "" } else { " (shadowed)" };
    let (reason, message) = (&finding.reason, &finding.message);
    outln!("  {rule:<16} {style}{decision} {reason}{style:#}{count}{shadowed}: {message}");
}
