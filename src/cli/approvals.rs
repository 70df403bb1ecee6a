//! `callgate approvals`: approval requests on the terminal.

use anstyle::{AnsiColor, Style};
use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};

use super::{
    approvals_bulk::{self, ApproveManyArgs, DenyManyArgs, FilterArgs, GroupKey, SortKey},
    evaluate::text,
    server_args::{ReadArgs, WriteArgs},
};
use callgate_client::{
    json::OutputFormat,
    output,
    remote::{AuthenticatedChannel, Remote, at, into_response, reason, refusal},
};
use callgate_proto::{
    time::duration,
    v1::{
        Approval, ApprovalGrouping, ApprovalOrder, ApprovalScope, ApprovalState, ClaimApprovalRequest,
        CommentApprovalRequest, GetApprovalRequest, ListApprovalsRequest, ResolveApprovalRequest,
        WatchApprovalsRequest, WithdrawApprovalRequest, approval_service_client::ApprovalServiceClient,
    },
};

/// Page size: the server's maximum.
const PAGE: u32 = 500;
/// Maximum characters of arguments in a line.
const ARGUMENTS: usize = 80;

/// Arguments of `callgate approvals`.
#[derive(Debug, Args)]
pub(super) struct ApprovalsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the open approval requests
    List {
        /// List answered and expired requests too
        #[arg(long, conflicts_with_all = ["sort", "by_group"])]
        all: bool,
        #[command(flatten)]
        filter: FilterArgs,
        /// Order of the open requests [default: newest first]
        #[arg(long)]
        sort: Option<SortKey>,
        /// Count the open requests by this instead of listing them
        #[arg(long = "group-by", value_name = "KEY")]
        by_group: Option<GroupKey>,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Show one request with its arguments and reasons
    Show {
        /// The request's id, from `approvals list`
        approval_id: String,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Approve the call: once, or for a time with --scope
    Approve {
        /// Approve later calls of the tool too: on the call's resource, or all of the session
        #[arg(long)]
        scope: Option<Scope>,
        /// Minutes that --scope lasts [default: 60]
        #[arg(long, requires = "scope")]
        minutes: Option<u64>,
        /// Approve other arguments, one JSON object: text, a file (@FILE), or standard input (-). The held call then
        /// never runs. The agent gets these arguments, and a call with exactly these runs once
        #[arg(long, value_name = "JSON", conflicts_with = "scope")]
        arguments: Option<String>,
        /// Check --arguments without answering: print them as they would execute, or their errors
        #[arg(long, requires = "arguments")]
        dry_run: bool,
        #[command(flatten)]
        answer: ResolveArgs,
    },
    /// Deny the call; the model gets the reason
    Deny(ResolveArgs),
    /// Claim a request, so that others see who works on it; a claim binds nobody, and ends after 15 minutes
    Claim {
        /// The request's id, from `approvals list`
        approval_id: String,
        /// Release your claim
        #[arg(long)]
        release: bool,
        #[command(flatten)]
        server: WriteArgs,
    },
    /// Comment on a request, for other approvers
    Comment {
        /// The request's id, from `approvals list`
        approval_id: String,
        /// The comment; the audit log has it too
        comment: String,
        #[command(flatten)]
        server: WriteArgs,
    },
    /// Approve several requests that were listed with --json, each once
    ApproveMany(ApproveManyArgs),
    /// Deny all open requests that match a filter
    DenyMany(DenyManyArgs),
    /// Withdraw a request as its requester: --by names the agent or session
    Withdraw(ResolveArgs),
    /// Print requests as they arrive, until Ctrl-C
    Watch {
        #[command(flatten)]
        server: ReadArgs,
    },
}

/// Further calls that an approval permits.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Scope {
    /// The session's calls of the tool on the same resource
    Resource,
    /// All calls of the tool in the session
    Tool,
}

#[derive(Debug, Args)]
struct ResolveArgs {
    /// The request's id, from `approvals list`
    approval_id: String,
    /// Reason, stored in the audit log; after a denial the model gets it. Required where the policy sets
    /// require_reason
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    server: WriteArgs,
}

/// Runs it.
pub(super) async fn run(args: ApprovalsArgs) -> anyhow::Result<()> {
    match args.action {
        Action::List { all, filter, sort, by_group, server: ReadArgs { form, remote } } => {
            let order = sort.map_or(ApprovalOrder::Unspecified, SortKey::order).into();
            let group_by = by_group.map_or(ApprovalGrouping::Unspecified, GroupKey::grouping).into();
            let state = if all { ApprovalState::Unspecified } else { ApprovalState::Pending };
            let request = ListApprovalsRequest { state: state.into(), order, group_by, ..filter.request() };
            list(request, form, client(&remote).await?).await
        }
        Action::Claim { approval_id, release, server } => {
            let request = server.by.sign_request(ClaimApprovalRequest { approval_id, release })?;
            let claimed = into_response(client(&server.remote).await?.claim_approval(request).await)?;
            server.form.print_items(claimed.approval.as_slice(), print_approval)
        }
        Action::Comment { approval_id, comment: text, server } => {
            let request = server.by.sign_request(CommentApprovalRequest { approval_id, text })?;
            let commented = into_response(client(&server.remote).await?.comment_approval(request).await)?;
            server.form.print_items(commented.approval.as_slice(), whole)
        }
        Action::ApproveMany(args) => approvals_bulk::approve(args).await,
        Action::DenyMany(args) => approvals_bulk::deny(args).await,
        Action::Show { approval_id, server: ReadArgs { form, remote } } => {
            let mut client = client(&remote).await?;
            let found = into_response(client.get_approval(GetApprovalRequest { approval_id }).await)?;
            form.print_items(found.approval.as_slice(), whole)
        }
        Action::Approve { scope, minutes, arguments, dry_run, answer } => {
            let scope = match scope {
                None => ApprovalScope::Call,
                Some(Scope::Resource) => ApprovalScope::Resource,
                Some(Scope::Tool) => ApprovalScope::Tool,
            };
            let ttl = minutes.map(|minutes| duration(minutes.saturating_mul(60_000)));
            let edited_arguments_json = match &arguments {
                Some(given) => text("--arguments", given)?,
                None => String::new(),
            };
            let (approve, scope, validate_only) = (true, scope.into(), dry_run);
            let yes = ResolveApprovalRequest {
                approve,
                scope,
                ttl,
                edited_arguments_json,
                validate_only,
                ..Default::default()
            };
            resolve(answer, yes).await
        }
        Action::Deny(answer) => resolve(answer, ResolveApprovalRequest::default()).await,
        Action::Withdraw(ResolveArgs { approval_id, reason, server: WriteArgs { by, form, remote } }) => {
            let mut client = client(&remote).await?;
            let request = by.sign_request(WithdrawApprovalRequest { approval_id, reason })?;
            form.print_items(
                into_response(client.withdraw_approval(request).await)?.approval.as_slice(),
                print_approval,
            )
        }
        Action::Watch { server: ReadArgs { form, remote } } => watch(form, client(&remote).await?).await,
    }
}

pub(super) async fn client(remote: &Remote) -> anyhow::Result<ApprovalServiceClient<AuthenticatedChannel>> {
    Ok(ApprovalServiceClient::new(remote.connect().await?))
}

async fn list(
    mut request: ListApprovalsRequest,
    form: OutputFormat,
    mut client: ApprovalServiceClient<AuthenticatedChannel>,
) -> anyhow::Result<()> {
    let all = request.state() == ApprovalState::Unspecified;
    request.page_size = PAGE;
    let mut page = into_response(client.list_approvals(request.clone()).await)?;
    // Of a group's, the first pages may be empty.
    while page.approvals.is_empty() && !page.next_page_token.is_empty() {
        request.page_token = page.next_page_token;
        page = into_response(client.list_approvals(request.clone()).await)?;
    }
    if request.group_by() != ApprovalGrouping::Unspecified {
        return form.print_items(&page.groups, approvals_bulk::print_group);
    }
    let approvals = page.approvals;
    if approvals.is_empty() && !form.json {
        outln!("No approval requests{}.", if all { "" } else { " are open" });
    }
    form.print_items(&approvals, print_approval)?;
    if !page.next_page_token.is_empty() {
        errln!("note: only the first {PAGE} requests are shown");
    }
    Ok(())
}

async fn resolve(answer: ResolveArgs, what: ResolveApprovalRequest) -> anyhow::Result<()> {
    let mut client = client(&answer.server.remote).await?;
    let request = ResolveApprovalRequest { approval_id: answer.approval_id, reason: answer.reason, ..what };
    let resolved = client.resolve_approval(answer.server.by.sign_request(request)?).await;
    if resolved.as_ref().is_err_and(|status| reason(status).as_deref() == Some("REASON_MISSING")) {
        bail!("the request is still open: the policy requires a reason (require_reason). Add --reason TEXT");
    }
    let resolved = into_response(resolved)?;
    let is_edited = resolved.approval.as_ref().is_some_and(|approval| !approval.edited_args_digest.is_empty());
    answer.server.form.print_items(resolved.approval.as_slice(), if is_edited { whole } else { print_approval })
}

async fn watch(form: OutputFormat, mut client: ApprovalServiceClient<AuthenticatedChannel>) -> anyhow::Result<()> {
    let mut questions = into_response(client.watch_approvals(WatchApprovalsRequest::default()).await)?;
    while !output::is_closed() {
        let told = tokio::select! {
            told = questions.message() => told,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        match told {
            Ok(Some(told)) => form.print_items(told.approval.as_slice(), print_approval)?,
            Ok(None) => bail!("the server ended the watch"),
            Err(status) => return Err(refusal(&status)),
        }
    }
    Ok(())
}

pub(super) fn state(approval: &Approval) -> (&'static str, Style) {
    let colored = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
    match approval.state() {
        ApprovalState::Pending => ("open", colored(AnsiColor::Yellow)),
        ApprovalState::Approved => ("approved", colored(AnsiColor::Green)),
        ApprovalState::Edited => ("edited", colored(AnsiColor::Green)),
        ApprovalState::Denied => ("denied", colored(AnsiColor::Red)),
        ApprovalState::Expired => ("expired", Style::new().dimmed()),
        ApprovalState::Withdrawn => ("withdrawn", Style::new().dimmed()),
        ApprovalState::Unspecified => ("?", Style::new().dimmed()),
    }
}

fn print_approval(approval: &Approval) {
    let (state, style) = state(approval);
    let mut arguments: String = approval.arguments_json.chars().take(ARGUMENTS).collect();
    if arguments.len() < approval.arguments_json.len() {
        arguments.push('…');
    }
    outln!(
        "{}  {style}{state:<9}{style:#}  {}  {} {arguments}  ({}){}",
        approval.approval_id,
        at(approval.create_time.as_ref()),
        approval.tool,
        approval.session_id,
        describe_approvers(approval).map(|whom| format!("  for {whom}")).unwrap_or_default()
            + &claim(approval).map(|claim| format!("  claimed by {claim}")).unwrap_or_default()
    );
}

/// The claim of a request: by whom, and until when.
fn claim(approval: &Approval) -> Option<String> {
    let until = approval.claim_expire_time.as_ref()?;
    Some(format!("{}, until {}", approval.claimed_by, at(Some(until))))
}

/// Approvers of an open request, where restricted.
fn describe_approvers(approval: &Approval) -> Option<String> {
    let is_open = approval.state() == ApprovalState::Pending;
    (is_open && (!approval.group.is_empty() || approval.required_approvals > 1)).then(|| asked_of(approval))
}

/// Number of required approvals, and the group.
fn asked_of(approval: &Approval) -> String {
    let mut whom = if approval.required_approvals > 1 { "two people" } else { "one person" }.to_owned();
    whom += &match approval.group.as_str() {
        "" => ", any approver".to_owned(),
        group => format!(" of group {group}"),
    };
    if !approval.escalate_group.is_empty() {
        whom += &format!(", from {} also of group {}", at(approval.escalate_time.as_ref()), approval.escalate_group);
    }
    if !approval.approved_by.is_empty() {
        whom += &format!("; approved by {} so far", approval.approved_by.join(", "));
    }
    whom
}

/// A multi-line text of a field, indented so that no line looks like a field.
fn of_lines(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.replace(['\n', '\r'], "\n             ") }
}

fn whole(approval: &Approval) {
    let (state, style) = state(approval);
    let of = of_lines;
    outln!("{}  {style}{state}{style:#}", approval.approval_id);
    outln!("  call       {} of session {}", approval.call_id, approval.session_id);
    outln!("  agent      {}", of(&approval.agent_id));
    if !approval.host.is_empty() {
        outln!("  host       {} (its own claim)", approval.host);
    }
    outln!("  tool       {}", approval.tool);
    outln!("  arguments  {}", of(&approval.arguments_json));
    if !approval.edited_args_digest.is_empty() {
        let what = if approval.state() == ApprovalState::Edited { "approved " } else { "chosen   " };
        outln!("  {what}  {}", of(&approval.edited_arguments_json));
        if approval.edited_expire_time.is_some() {
            outln!("  valid to   {}, for one call; the held call never runs", at(approval.edited_expire_time.as_ref()));
        }
        if !approval.ran_call_id.is_empty() {
            outln!("  ran as     {}", approval.ran_call_id);
        }
    }
    outln!("  purpose    {}", of(&approval.justification));
    approval.reasons.iter().for_each(|reason| outln!("  rule       {}", of(reason)));
    outln!("  for        {}", asked_of(approval));
    if let Some(claim) = claim(approval) {
        outln!("  claimed    {claim}");
    }
    for comment in &approval.comments {
        let text = format!("{}, {}: {}", at(comment.create_time.as_ref()), comment.by, comment.text);
        outln!("  comment    {}", of(&text));
    }
    outln!("  created    {}, expires {}", at(approval.create_time.as_ref()), at(approval.expire_time.as_ref()));
    if approval.resolve_time.is_some() {
        let done = if approval.state() == ApprovalState::Withdrawn { "withdrawn " } else { "answered  " };
        outln!("  {done} {} by {}", at(approval.resolve_time.as_ref()), approval.resolved_by);
        outln!("  reason     {}", of(&approval.resolution_reason));
        if let Some(until) = &approval.scope_expire_time {
            let on = if approval.resource.is_empty() { String::new() } else { format!(" on {}", approval.resource) };
            outln!("  approves   {} of session {}{on}, until {}", approval.tool, approval.session_id, at(Some(until)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_several_lines_is_no_further_field() {
        let forged = of_lines("as agreed\n  answered   2026-11-26 by ada\r  reason     fine");
        assert_eq!(forged.lines().count(), 3);
        assert!(forged.lines().skip(1).all(|line| line.starts_with("             ")), "{forged}");
        assert_eq!((of_lines("").as_str(), of_lines("one line").as_str()), ("-", "one line"));
    }
}
