//! `callgate approvals approve-many`, `deny-many`, and the filter of lists.

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use super::{approvals::client, evaluate::text, server_args::WriteArgs};
use callgate_client::remote::{at, into_response};
use callgate_proto::v1::{
    ApprovalFilter, ApprovalGroup, ApprovalGrouping, ApprovalOrder, ApprovalResult, ApprovalRisk, ApprovalSelection,
    ApprovalState, ListApprovalsRequest, ResolveApprovalsRequest,
};

/// Filter of approval requests.
#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    /// Only requests of this tool
    #[arg(long, default_value = "", hide_default_value = true)]
    tool: String,
    /// Only requests of this agent
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
    /// Only requests of this rule
    #[arg(long, default_value = "", hide_default_value = true)]
    rule: String,
    /// Only requests of this session
    #[arg(long, default_value = "", hide_default_value = true)]
    session: String,
    /// Only requests with at least this amount
    #[arg(long, value_name = "AMOUNT")]
    min_amount: Option<f64>,
    /// Only requests with at most this amount
    #[arg(long, value_name = "AMOUNT")]
    max_amount: Option<f64>,
    /// Only requests that members of this group may answer now
    #[arg(long, value_name = "GROUP", default_value = "", hide_default_value = true)]
    group: String,
}

impl FilterArgs {
    /// The request for a list of them.
    pub(super) fn request(self) -> ListApprovalsRequest {
        let Self { tool, agent, rule, session, min_amount, max_amount, group } = self;
        let filter = ApprovalFilter { tool, agent_id: agent, rule, min_amount, max_amount };
        let filter = (filter != ApprovalFilter::default()).then_some(filter);
        ListApprovalsRequest { session_id: session, group, filter, ..ListApprovalsRequest::default() }
    }
}

/// Order of a list.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum SortKey {
    /// Highest risk first
    Risk,
    /// Largest amount first
    Amount,
    /// Least time left first
    Time,
}

impl SortKey {
    pub(super) const fn order(self) -> ApprovalOrder {
        match self {
            Self::Risk => ApprovalOrder::Risk,
            Self::Amount => ApprovalOrder::Amount,
            Self::Time => ApprovalOrder::Expiry,
        }
    }
}

/// Property by which a list is counted.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum GroupKey {
    Tool,
    Agent,
    /// The requesting rule
    Rule,
    /// The power of ten of the amount
    Amount,
}

impl GroupKey {
    pub(super) const fn grouping(self) -> ApprovalGrouping {
        match self {
            Self::Tool => ApprovalGrouping::Tool,
            Self::Agent => ApprovalGrouping::Agent,
            Self::Rule => ApprovalGrouping::Rule,
            Self::Amount => ApprovalGrouping::Amount,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct ApproveManyArgs {
    /// The requests, as `approvals list --json` printed them, one a line: a file (@FILE), or standard input (-). At
    /// most 50. A request whose arguments changed since then is skipped
    requests: String,
    /// Reason, stored in the audit log with each
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    server: WriteArgs,
}

#[derive(Debug, Args)]
pub(super) struct DenyManyArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Deny all open requests: required without a filter
    #[arg(long)]
    all: bool,
    /// Reason; the models get it
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    server: WriteArgs,
}

/// Runs `approvals approve-many`.
pub(super) async fn approve(args: ApproveManyArgs) -> anyhow::Result<()> {
    let listed = text("REQUESTS", &args.requests)?;
    let lines = listed.lines().filter(|line| !line.trim().is_empty());
    let approvals = lines.map(selection).collect::<anyhow::Result<Vec<_>>>()?;
    let reason = args.reason;
    let request = ResolveApprovalsRequest { approve: true, reason, approvals, ..ResolveApprovalsRequest::default() };
    resolve(args.server, request).await
}

/// Runs `approvals deny-many`.
pub(super) async fn deny(args: DenyManyArgs) -> anyhow::Result<()> {
    let matching = Some(matching(args.filter, args.all)?);
    let request = ResolveApprovalsRequest { reason: args.reason, matching, ..ResolveApprovalsRequest::default() };
    resolve(args.server, request).await
}

/// The list to deny. Without a filter, as of an unset variable, it holds everything.
fn matching(filter: FilterArgs, all: bool) -> anyhow::Result<ListApprovalsRequest> {
    let matching = filter.request();
    if matching == ListApprovalsRequest::default() && !all {
        bail!("no filter has a value, so all open requests would be denied: give one, or --all to deny them all");
    }
    Ok(matching)
}

/// A line of `approvals list --json`.
fn selection(line: &str) -> anyhow::Result<ApprovalSelection> {
    let listed: serde_json::Value = serde_json::from_str(line).context("REQUESTS: a line is not JSON")?;
    let text = |key: &str| {
        let text = listed.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        text.with_context(|| format!("REQUESTS: a line has no {key}; take the lines of `approvals list --json`"))
    };
    Ok(ApprovalSelection { approval_id: text("approvalId")?, args_digest: text("argsDigest")? })
}

async fn resolve(server: WriteArgs, request: ResolveApprovalsRequest) -> anyhow::Result<()> {
    let mut client = client(&server.remote).await?;
    let done = into_response(client.resolve_approvals(server.by.sign_request(request)?).await)?;
    server.form.print_items(&done.results, print_result)?;
    if done.results.is_empty() && !server.form.json {
        outln!("No approval request matches.");
    }
    if done.remaining_size > 0 {
        errln!("note: {} more match and are still open; run the command again", done.remaining_size);
    }
    match done.results.iter().filter(|result| !result.error_reason.is_empty()).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} requests were not answered", done.results.len()),
    }
}

fn print_result(result: &ApprovalResult) {
    let state = match result.state() {
        ApprovalState::Approved => "approved",
        ApprovalState::Denied => "denied",
        _ => "failed",
    };
    let why = if result.error_reason.is_empty() {
        String::new()
    } else {
        format!("  {}: {}", result.error_reason, result.error_message)
    };
    outln!("{}  {state:<8}  {}{why}", result.approval_id, result.tool);
}

/// A group of open requests as a line.
pub(super) fn print_group(group: &ApprovalGroup) {
    let risk = match group.risk() {
        ApprovalRisk::High => "high",
        ApprovalRisk::Medium => "medium",
        ApprovalRisk::Low | ApprovalRisk::Unspecified => "low",
    };
    let name = if group.name.is_empty() { "-" } else { &group.name };
    let amount = group.amount.map(|amount| format!("  amounts {amount}")).unwrap_or_default();
    outln!("{:>6}  {risk:<6}  {name}  first expires {}{amount}", group.count, at(group.expire_time.as_ref()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_of_all_requests_is_asked_for() {
        let filter = |agent: &str, min_amount| FilterArgs {
            tool: String::new(),
            agent: agent.to_owned(),
            rule: String::new(),
            session: String::new(),
            min_amount,
            max_amount: None,
            group: String::new(),
        };
        let refused = matching(filter("", None), false).expect_err("no filter").to_string();
        assert!(refused.contains("--all"), "{refused}");
        for (agent, min_amount, all) in [("", None, true), ("crawler", None, false), ("", Some(5.0), false)] {
            assert!(matching(filter(agent, min_amount), all).is_ok(), "{agent} {min_amount:?}");
        }
    }
}
