//! `/sessions/{id}`: a session with its child sessions as a trace, its budgets, and the actions on it.

use std::time::Duration;

use askama::Template;
use axum::{
    Router,
    extract::{Path, Query},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use http::StatusCode;
use serde::Deserialize;
use tokio::{time::timeout, try_join};
use tonic::{Code, Status};
use url::form_urlencoded::byte_serialize;

use super::{
    budget_use::Budget,
    raise::{self, RaisableBudget},
    sessions::{self, ActiveHalt, describe_action},
    trace::{Trace, TraceLine},
};
use crate::{
    console::{Console, fault::PageError, filters, form::FormPost, frame::Frame, labels, visitor::Visitor},
    grpc::Insider,
};
use callgate_proto::v1::{
    Approval, ApprovalState, CallEntry, CallFilter, CreateGrantRequest, Decision, GetSessionRequest,
    GetSessionStateRequest, Grant, HaltScope, HaltState, ListApprovalsRequest, ListCallsRequest, ListGrantsRequest,
    ListHaltsRequest, RevokeGrantRequest, Role, SessionState, SessionSummary, SetPhaseRequest, WatchSessionRequest,
    WatchSessionResponse, approval_service_client::ApprovalServiceClient, gate_service_client::GateServiceClient,
    grant_service_client::GrantServiceClient, session_service_client::SessionServiceClient,
};

/// Calls of a page.
const SHOWN: u32 = 100;
/// Time of the session's state; the page is shown without it then.
const STATE_TIME: Duration = Duration::from_secs(1);

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
    /// `refused`: only calls that were refused.
    only: String,
    done: String,
    part: String,
}

impl SessionPageQuery {
    fn is_oldest_first(&self) -> bool {
        self.order == "oldest"
    }

    fn is_refused(&self) -> bool {
        self.only == "refused"
    }

    fn calls(&self, session: &str) -> ListCallsRequest {
        let filter = CallFilter { refused: true, ..CallFilter::default() };
        ListCallsRequest {
            session_id: session.to_owned(),
            filter: self.is_refused().then_some(filter),
            oldest_first: self.is_oldest_first(),
            page_size: SHOWN,
            page_token: self.after.clone(),
            ..ListCallsRequest::default()
        }
    }
}

/// The address of a part of the trace.
fn link(path: &str, is_oldest_first: bool, is_refused: bool, after: &str) -> String {
    let order = if is_oldest_first { "oldest" } else { "" };
    let only = if is_refused { "refused" } else { "" };
    let fields = [("order", order), ("only", only), ("after", after)];
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let query = query.extend_pairs(fields.into_iter().filter(|(_, value)| !value.is_empty())).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[derive(Template)]
#[template(path = "session.html", blocks = ["now"])]
struct Page {
    frame: Frame,
    id: String,
    path: String,
    /// The session with the totals of its call tree.
    whole: SessionSummary,
    tokens: u64,
    refused_calls: Option<u64>,
    /// From the first event of the session to the last one of its call tree.
    took: String,
    state: SessionState,
    /// The state could not be read in time: the trace is shown without it.
    is_unavailable: bool,
    budgets: Vec<Budget>,
    halts: Vec<ActiveHalt>,
    questions: Vec<Approval>,
    /// None where they could not be read in time.
    grants: Option<Vec<Grant>>,
    /// Budgets that may be raised.
    raisable: Vec<RaisableBudget>,
    trace: Trace,
    is_oldest_first: bool,
    is_refused: bool,
    is_live: bool,
    /// Address of the following page; empty: none.
    next: String,
    links: Links,
    agents: Vec<String>,
    is_operator: bool,
    done: &'static str,
    fault: Option<String>,
    form: Change,
}

/// Addresses of the trace, otherwise filtered or ordered.
struct Links {
    all: String,
    refused: String,
    newest: String,
    oldest: String,
}

async fn show(
    visitor: Visitor,
    Path(id): Path<String>,
    Query(place): Query<SessionPageQuery>,
) -> Result<Response, PageError> {
    page(&visitor, id, place, None, Change::default()).await
}

/// True for an error of the moment: a part of the page is left out for it.
fn is_passing(status: &Status) -> bool {
    matches!(status.code(), Code::ResourceExhausted | Code::DeadlineExceeded)
}

/// The grants of the session; none where they cannot be read now, as its [`state`].
async fn grants(visitor: &Visitor, id: &str) -> Result<Option<Vec<Grant>>, Status> {
    let grants = ListGrantsRequest { session_id: id.to_owned(), ..ListGrantsRequest::default() };
    let mut granted = GrantServiceClient::new(visitor.calls.clone());
    match timeout(STATE_TIME, granted.list_grants(grants)).await {
        Ok(Ok(granted)) => Ok(Some(granted.into_inner().grants)),
        Ok(Err(status)) if !is_passing(&status) => Err(status),
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

async fn page(
    visitor: &Visitor,
    id: String,
    place: SessionPageQuery,
    fault: Option<PageError>,
    form: Change,
) -> Result<Response, PageError> {
    let mut sessions = SessionServiceClient::new(visitor.calls.clone());
    let is_part = place.part == "now";
    let (is_oldest_first, is_refused) = (place.is_oldest_first(), place.is_refused());
    // Two at a time: there are few connections for people.
    let now = state(visitor, &id, is_part);
    let grants = grants(visitor, &id);
    let (now, found, grants) = try_join!(now, sessions.list_calls(place.calls(&id)), grants)?;
    let (is_unavailable, mut found) = (now.is_none(), found.into_inner());
    let WatchSessionResponse { state, halt } = now.unwrap_or_default();
    let state = state.unwrap_or_default();
    if !is_oldest_first {
        found.calls.reverse();
    }
    let mut agents: Vec<String> =
        found.calls.iter().map(|call| call.agent_id.clone()).filter(|agent| !agent.is_empty()).collect();
    agents.sort_unstable();
    agents.dedup();
    let halts = halts(sessions.clone(), (&agents, &found.calls), (halt.as_ref(), &id));
    let mut totals = sessions.clone();
    let whole = async { Ok(totals.get_session(GetSessionRequest { session_id: id.clone() }).await?.into_inner()) };
    let (halts, whole) = try_join!(halts, whole)?;
    let (tokens, refused_calls) = (whole.tokens, whole.refused_calls);
    let whole = whole.session.unwrap_or_default();
    let questions = questions(visitor, &id, &found.calls).await?;
    let path = path(&id);
    let next = match found.next_page_token.as_str() {
        "" => String::new(),
        next => link(&path, is_oldest_first, is_refused, next),
    };
    let page = Page {
        frame: Frame::new(visitor, sessions::PATH, format!("Session {id}")),
        budgets: state.budgets.iter().map(Budget::new).collect(),
        halts,
        questions,
        grants,
        raisable: raise::choices(&state.budgets),
        trace: Trace::new(&id, found.calls, visitor.now.as_millis()),
        took: super::sessions::lasted(&whole),
        whole,
        tokens,
        refused_calls,
        is_oldest_first,
        is_refused,
        is_live: !is_oldest_first && place.after.is_empty(),
        next,
        links: Links {
            all: link(&path, is_oldest_first, false, ""),
            refused: link(&path, is_oldest_first, true, ""),
            newest: link(&path, false, is_refused, ""),
            oldest: link(&path, true, is_refused, ""),
        },
        agents,
        is_operator: visitor.is_one_of(&[Role::Operator]),
        done: describe_action(&place.done),
        fault: fault.as_ref().map(|fault| fault.message().to_owned()),
        form,
        state,
        is_unavailable,
        id,
        path,
    };
    let html = if is_part { page.as_now().render()? } else { page.render()? };
    Ok((fault.map_or(StatusCode::OK, |fault| fault.code()), Html(html)).into_response())
}

/// The state of a session with its halt; none where it cannot be read now, as that of a call tree that takes long to
/// load.
async fn state(visitor: &Visitor, id: &str, is_part: bool) -> Result<Option<WatchSessionResponse>, Status> {
    let read = async {
        let watched = WatchSessionRequest { session_id: id.to_owned() };
        let watched = SessionServiceClient::new(visitor.calls.clone()).watch_session(watched).await?;
        let mut now = watched.into_inner().message().await?.unwrap_or_default();
        if !is_part {
            // The watched state may be half a second old, and the user may just have changed something.
            let asked = GetSessionStateRequest { session_id: id.to_owned(), ..GetSessionStateRequest::default() };
            let mut gate = GateServiceClient::new(visitor.calls.clone());
            now.state = gate.get_session_state(asked).await?.into_inner().state;
        }
        Ok::<_, Status>(now)
    };
    match timeout(STATE_TIME, read).await {
        Ok(Ok(now)) => Ok(Some(now)),
        Ok(Err(status)) if !is_passing(&status) => Err(status),
        Ok(Err(_)) | Err(_) => Ok(None),
    }
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
                    ttl: Some(prost_types::Duration { seconds, nanos: 0 }),
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
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(path("a/b c+d?é"), "/sessions/a%2Fb%20c%2Bd%3F%C3%A9");
    }
}
