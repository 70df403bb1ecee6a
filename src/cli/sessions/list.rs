//! `callgate sessions list`.

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::{PAGE, halts, of_halt};
use callgate_client::{
    json::OutputFormat,
    remote::{AuthenticatedChannel, at, into_response},
};
use callgate_proto::v1::{
    CallFilter, Decision, ListSessionsRequest, SessionOrder, SessionSummary,
    session_service_client::SessionServiceClient,
};

/// Order of a list of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// By the last event
    Latest,
    /// By cost
    Cost,
    /// By permitted calls
    Calls,
    /// From the first event to the last
    Duration,
}

/// Calls that a session has to have.
#[derive(Debug, Args)]
pub(super) struct ListFilter {
    /// Only sessions with a call of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Only sessions with a call for this user
    #[arg(long)]
    user: Option<String>,
    /// Only sessions with a call whose agent, user or tool has this text in its name
    #[arg(long)]
    name: Option<String>,
    /// Only sessions with a call of this tool, by its full name
    #[arg(long)]
    tool: Option<String>,
    /// Only sessions with a call of this decision
    #[arg(long, ignore_case = true, value_parser = ["ALLOW", "ASK", "WAIT", "REUSE", "DENY", "STOP"])]
    decision: Option<String>,
    /// Only sessions with a call decided by this rule
    #[arg(long)]
    rule: Option<String>,
    /// Only sessions with a call of this reason
    #[arg(long)]
    reason: Option<String>,
    /// Only sessions with a call that contains this text in its arguments or ids
    #[arg(long)]
    text: Option<String>,
}

impl ListFilter {
    /// The filter in the contract's form; none for all sessions.
    fn calls(&self) -> anyhow::Result<Option<CallFilter>> {
        let decision = match &self.decision {
            Some(decision) => Decision::from_str_name(&format!("DECISION_{}", decision.to_uppercase()))
                .context("this version does not know the decision")?,
            None => Decision::Unspecified,
        };
        let given = |field: &Option<String>| field.clone().unwrap_or_default();
        let filter = CallFilter {
            agent_id: given(&self.agent),
            tool: given(&self.tool),
            decision: decision.into(),
            rule: given(&self.rule),
            reason: given(&self.reason),
            text: given(&self.text),
            user_id: given(&self.user),
            name: given(&self.name),
            ..CallFilter::default()
        };
        Ok((filter != CallFilter::default()).then_some(filter))
    }
}

/// Lists sessions, and first all halts.
pub(super) async fn run(
    all: bool,
    sort: Order,
    like: &ListFilter,
    form: OutputFormat,
    mut client: SessionServiceClient<AuthenticatedChannel>,
) -> anyhow::Result<()> {
    if !form.json {
        halts(&mut client).await?.iter().for_each(|halt| outln!("halted: {}", of_halt(halt)));
    }
    let page_size = if all { PAGE } else { 0 };
    let order = match sort {
        Order::Latest => SessionOrder::Latest,
        Order::Cost => SessionOrder::Cost,
        Order::Calls => SessionOrder::Calls,
        Order::Duration => SessionOrder::Duration,
    };
    let calls = like.calls()?;
    let mut request = ListSessionsRequest { page_size, calls, order: order.into(), ..ListSessionsRequest::default() };
    loop {
        let page = into_response(client.list_sessions(request.clone()).await)?;
        let sessions = page.sessions;
        if sessions.is_empty() && request.page_token.is_empty() && !form.json {
            match (&request.calls, page.next_page_token.is_empty()) {
                (None, _) => outln!("No sessions have calls yet."),
                (Some(_), true) => outln!("No sessions have a matching call."),
                (Some(_), false) => outln!("No sessions have a matching call among those searched."),
            }
        }
        let widest = sessions.iter().map(|session| session.session_id.chars().count()).max().unwrap_or(0);
        form.print_items(&sessions, |session| print_session(session, widest))?;
        match page.next_page_token {
            end if end.is_empty() => return Ok(()),
            _ if !all => {
                let searched = page.searched_range.unwrap_or_default();
                let left = searched.remaining_call_trees;
                match (&request.calls, searched.since_time) {
                    (None, _) => errln!("note: only the first {} sessions are shown; --all shows all", sessions.len()),
                    (Some(_), Some(since)) => {
                        errln!("note: searched back to {}; --all searches everything", at(Some(&since)));
                    }
                    (Some(_), None) => errln!("note: {left} call trees are not searched; --all searches everything"),
                }
                return Ok(());
            }
            next => request.page_token = next,
        }
    }
}

fn print_session(session: &SessionSummary, widest: usize) {
    outln!(
        "{}  {:<widest$}  {:>6} calls  {:>3} open  ${}.{:02}{}",
        at(session.update_time.as_ref()),
        session.session_id,
        session.calls,
        session.open_calls,
        session.cost_micros / 1_000_000,
        session.cost_micros % 1_000_000 / 10_000,
        if session.halted { "  halted" } else { "" }
    );
}
