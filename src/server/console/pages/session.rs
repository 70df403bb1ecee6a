//! `/sessions/{id}`: a session with its child sessions as a timeline, its budgets, and the actions on it.

use askama::Template;
use axum::{
    Router,
    extract::{Path, Query},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use http::StatusCode;
use prost_types::Duration;
use serde::Deserialize;
use tokio::try_join;
use url::form_urlencoded::byte_serialize;

use super::{
    raise::{self, RaisableBudget},
    sessions::{self, ActiveHalt, describe_action},
    timeline::{Segment, segments},
};
use crate::{
    console::{Console, fault::PageError, filters, form::FormPost, frame::Frame, labels, visitor::Visitor},
    grpc::Insider,
};
use callgate_proto::v1::{
    Approval, ApprovalState, BudgetDimension, BudgetScope, BudgetUsage, CallEntry, CreateGrantRequest, Decision,
    GetSessionStateRequest, Grant, HaltScope, HaltState, ListApprovalsRequest, ListCallsRequest, ListGrantsRequest,
    ListHaltsRequest, RevokeGrantRequest, Role, SessionState, SetPhaseRequest, WatchSessionRequest,
    approval_service_client::ApprovalServiceClient, gate_service_client::GateServiceClient,
    grant_service_client::GrantServiceClient, session_service_client::SessionServiceClient,
};

/// Calls whose use of budgets the chart shows.
const CHARTED: u32 = 200;

pub(super) fn router() -> Router<Console> {
    Router::new().route("/sessions/{id}", get(show).post(change))
}

/// Path of a session's page.
pub(super) fn path(session: &str) -> String {
    format!("/sessions/{}", encode_segment(session))
}

/// A name as a part of a path. A form's space is a plus, which a path would take for one.
pub(super) fn encode_segment(name: &str) -> String {
    byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SessionPageQuery {
    after: String,
    order: String,
    done: String,
    part: String,
}

#[derive(Template)]
#[template(path = "session.html", blocks = ["now"])]
struct Page {
    frame: Frame,
    id: String,
    path: String,
    state: SessionState,
    budgets: Vec<Budget>,
    chart: Chart,
    halts: Vec<ActiveHalt>,
    questions: Vec<Approval>,
    grants: Vec<Grant>,
    /// Budgets that may be raised.
    raisable: Vec<RaisableBudget>,
    segments: Vec<Segment>,
    is_oldest_first: bool,
    is_live: bool,
    next: String,
    agents: Vec<String>,
    is_operator: bool,
    done: &'static str,
    fault: Option<String>,
    form: Change,
}

/// A remaining budget.
struct Budget {
    name: String,
    used: String,
    limit: String,
    /// Amount of the limit beyond the policy's; empty: none.
    extra: String,
    percent: u64,
    class: &'static str,
}

impl Budget {
    fn new(left: &BudgetUsage) -> Self {
        let percent = share(left.used, left.limit);
        Self {
            name: labels::budget(left),
            used: labels::amount(left.dimension(), left.used),
            limit: labels::amount(left.dimension(), left.limit),
            extra: if left.extra > 0 { labels::amount(left.dimension(), left.extra) } else { String::new() },
            percent,
            class: match percent {
                100.. => "bad",
                80.. => "warn",
                _ => "",
            },
        }
    }
}

fn share(used: u64, limit: u64) -> u64 {
    used.saturating_mul(100).checked_div(limit).unwrap_or(100)
}

/// The use of the session's own budgets over its last steps, in percent: computed backwards from the present use.
#[derive(Default)]
struct Chart {
    names: Vec<String>,
    /// The place of a call, and the use of each budget after it.
    rows: Vec<(u64, Vec<u64>)>,
}

impl Chart {
    fn new(budgets: &[BudgetUsage], calls: &[CallEntry]) -> Self {
        let is_own =
            |left: &&BudgetUsage| left.scope() == BudgetScope::CallTree && spending_of(left.dimension()).is_some();
        let mut own: Vec<&BudgetUsage> = budgets.iter().filter(is_own).collect();
        own.sort_by_key(|left| std::cmp::Reverse(share(left.used, left.limit)));
        own.truncate(4);
        let mut used: Vec<u64> = own.iter().map(|left| left.used).collect();
        let mut rows = Vec::with_capacity(calls.len());
        if own.is_empty() {
            return Self::default();
        }
        // The newest first.
        for call in calls {
            rows.push((call.seq, own.iter().zip(&used).map(|(left, used)| share(*used, left.limit)).collect()));
            for (left, used) in own.iter().zip(&mut used) {
                let of = spending_of(left.dimension()).map_or(0, |spent| spent(call));
                *used = used.saturating_sub(of);
            }
        }
        rows.reverse();
        Self { names: own.into_iter().map(labels::budget).collect(), rows }
    }
}

/// Use of a budget by one call; none for budgets that are no sum over calls.
fn spending_of(dimension: BudgetDimension) -> Option<fn(&CallEntry) -> u64> {
    Some(match dimension {
        BudgetDimension::Steps => |_| 1,
        BudgetDimension::ToolCalls => |call| u64::from(call.attempt > 0),
        BudgetDimension::CostMicros => |call| call.usage.as_ref().map_or(0, |usage| usage.cost_micros),
        BudgetDimension::Tokens => |call| {
            call.usage.as_ref().map_or(0, |usage| {
                let cached = usage.cache_read_tokens + usage.cache_write_tokens;
                usage.input_tokens + usage.output_tokens + cached
            })
        },
        _ => return None,
    })
}

async fn show(
    visitor: Visitor,
    Path(id): Path<String>,
    Query(place): Query<SessionPageQuery>,
) -> Result<Response, PageError> {
    page(&visitor, id, place, None, Change::default()).await
}

async fn page(
    visitor: &Visitor,
    id: String,
    place: SessionPageQuery,
    fault: Option<PageError>,
    form: Change,
) -> Result<Response, PageError> {
    let mut sessions = SessionServiceClient::new(visitor.calls.clone());
    let watched = WatchSessionRequest { session_id: id.clone() };
    let now = sessions.watch_session(watched).await?.into_inner().message().await?.unwrap_or_default();
    let is_part = place.part == "now";
    let state = async {
        if is_part {
            return Ok(now.state.clone());
        }
        // The watched state may be half a second old, and the user may just have changed something.
        let asked = GetSessionStateRequest { session_id: id.clone(), ..GetSessionStateRequest::default() };
        let mut gate = GateServiceClient::new(visitor.calls.clone());
        gate.get_session_state(asked).await.map(|found| found.into_inner().state)
    };
    let is_oldest_first = place.order == "oldest";
    let asked = ListCallsRequest {
        session_id: id.clone(),
        oldest_first: is_oldest_first,
        page_size: 50,
        page_token: place.after.clone(),
        ..ListCallsRequest::default()
    };
    let grants = ListGrantsRequest { session_id: id.clone(), ..ListGrantsRequest::default() };
    let mut granted = GrantServiceClient::new(visitor.calls.clone());
    // Two at a time: there are few connections for people.
    let (state, found, grants) = try_join!(state, sessions.list_calls(asked), granted.list_grants(grants))?;
    let (state, found) = (state.unwrap_or_default(), found.into_inner());
    let mut agents: Vec<String> =
        found.calls.iter().map(|call| call.agent_id.clone()).filter(|agent| !agent.is_empty()).collect();
    agents.sort_unstable();
    agents.dedup();
    let of_chart = async {
        if is_part {
            return Ok(Vec::new());
        }
        let newest = ListCallsRequest { session_id: id.clone(), page_size: CHARTED, ..Default::default() };
        let mut sessions = sessions.clone();
        sessions.list_calls(newest).await.map(|found| found.into_inner().calls).map_err(PageError::from)
    };
    let halts = halts(sessions.clone(), (&agents, &found.calls), (now.halt.as_ref(), &id));
    let (of_chart, halts) = try_join!(of_chart, halts)?;
    let questions = questions(visitor, &id, &found.calls).await?;
    let path = path(&id);
    let next = match found.next_page_token.as_str() {
        "" => String::new(),
        next => format!("{path}?order={}&after={next}", if is_oldest_first { "oldest" } else { "newest" }),
    };
    let page = Page {
        frame: Frame::new(visitor, sessions::PATH, format!("Session {id}")),
        budgets: state.budgets.iter().map(Budget::new).collect(),
        chart: Chart::new(&state.budgets, &of_chart),
        halts,
        questions,
        grants: grants.into_inner().grants,
        raisable: raise::choices(&state.budgets),
        segments: segments(found.calls),
        is_oldest_first,
        is_live: !is_oldest_first && place.after.is_empty(),
        next,
        agents,
        is_operator: visitor.is_one_of(&[Role::Operator]),
        done: describe_action(&place.done),
        fault: fault.as_ref().map(|fault| fault.message().to_owned()),
        form,
        state,
        id,
        path,
    };
    let html = if is_part { page.as_now().render()? } else { page.render()? };
    Ok((fault.map_or(StatusCode::OK, |fault| fault.code()), Html(html)).into_response())
}

/// Open requests of the session, and of sessions whose calls are shown.
async fn questions(visitor: &Visitor, id: &str, calls: &[CallEntry]) -> Result<Vec<Approval>, PageError> {
    let waits = |call: &&CallEntry| call.decision() == Decision::Ask;
    let mut asking: Vec<&str> = calls.iter().filter(waits).map(|call| call.session_id.as_str()).chain([id]).collect();
    asking.sort_unstable();
    asking.dedup();
    let mut questions = Vec::new();
    let mut approvals = ApprovalServiceClient::new(visitor.calls.clone());
    for session in asking {
        let (state, session_id) = (ApprovalState::Pending.into(), session.to_owned());
        let open = ListApprovalsRequest { state, session_id, ..ListApprovalsRequest::default() };
        questions.extend(approvals.list_approvals(open).await?.into_inner().approvals);
    }
    Ok(questions)
}

/// Halts of the session, or of some of its shown calls.
async fn halts(
    mut sessions: SessionServiceClient<Insider>,
    (agents, calls): (&[String], &[CallEntry]),
    (own, id): (Option<&HaltState>, &str),
) -> Result<Vec<ActiveHalt>, PageError> {
    let asked = ListHaltsRequest { page_size: 500, ..ListHaltsRequest::default() };
    let all = sessions.list_halts(asked).await?.into_inner().halts;
    let stops = |halt: &HaltState| match halt.scope() {
        HaltScope::Agent => agents.contains(&halt.name),
        HaltScope::Tool => calls.iter().any(|call| call.tool == halt.name),
        HaltScope::Tenant => true,
        HaltScope::Session | HaltScope::Unspecified => own == Some(halt) || halt.name == id,
    };
    Ok(all.into_iter().filter(stops).map(ActiveHalt::new).collect())
}

/// A form of this page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Change {
    what: String,
    tools: String,
    calls: String,
    minutes: String,
    grant: String,
    phase: String,
    plan: String,
    budget: String,
    more: String,
    reason: String,
}

impl Change {
    async fn apply(&self, visitor: &Visitor, session: &str) -> Result<&'static str, PageError> {
        let (session_id, reason) = (session.to_owned(), self.reason.trim().to_owned());
        let number = |field: &str, text: &str| {
            text.trim().parse::<u32>().map_err(|_| PageError::field(format!("{field}: must be a whole number")))
        };
        let mut grants = GrantServiceClient::new(visitor.calls.clone());
        match self.what.as_str() {
            "grant" => {
                let seconds = i64::from(number("minutes", &self.minutes)?) * 60;
                let asked = CreateGrantRequest {
                    session_id,
                    tool_pattern: self.tools.trim().to_owned(),
                    ceiling: number("calls", &self.calls)?.into(),
                    ttl: Some(Duration { seconds, nanos: 0 }),
                    reason,
                };
                grants.create_grant(asked).await?;
                Ok("granted")
            }
            "revoke" => {
                grants.revoke_grant(RevokeGrantRequest { session_id, grant_id: self.grant.clone(), reason }).await?;
                Ok("revoked")
            }
            "phase" => {
                let plan = self.plan.split_whitespace().map(str::to_owned).collect();
                let asked = SetPhaseRequest { session_id, phase: self.phase.trim().to_owned(), plan, reason };
                SessionServiceClient::new(visitor.calls.clone()).set_phase(asked).await?;
                Ok("phase")
            }
            "raise" => {
                let asked = raise::request(session, &self.budget, &self.more, reason)?;
                SessionServiceClient::new(visitor.calls.clone()).raise_budget(asked).await?;
                Ok("raised")
            }
            _ => Err(PageError::field("what: is no action of this form")),
        }
    }
}

async fn change(Path(id): Path<String>, FormPost { visitor, form }: FormPost<Change>) -> Result<Response, PageError> {
    match form.apply(&visitor, &id).await {
        Ok(done) => Ok(Redirect::to(&format!("{}?done={done}", path(&id))).into_response()),
        Err(fault) => page(&visitor, id, SessionPageQuery::default(), Some(fault), form).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_budgets_is_told_backwards_from_now() {
        let left = |dimension: BudgetDimension, used, limit| BudgetUsage {
            scope: BudgetScope::CallTree.into(),
            dimension: dimension.into(),
            used,
            limit,
            extra: 0,
        };
        let budgets = [left(BudgetDimension::ToolCalls, 5, 10), left(BudgetDimension::Steps, 6, 100)];
        let call = |seq, attempt| CallEntry { seq, attempt, ..CallEntry::default() };
        let chart = Chart::new(&budgets, &[call(9, 1), call(7, 0), call(4, 1)]);
        assert_eq!(chart.names.len(), 2);
        assert_eq!(chart.rows, [(4, vec![40, 4]), (7, vec![40, 5]), (9, vec![50, 6])]);
    }

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(path("a/b c+d?é"), "/sessions/a%2Fb%20c%2Bd%3F%C3%A9");
    }
}
