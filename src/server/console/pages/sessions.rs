//! `/sessions`: the sessions of agents, searched by their calls; and the halts.

use askama::Template;
use axum::{
    Router,
    extract::Query,
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use prost_types::Timestamp;
use serde::Deserialize;
use tokio::try_join;
use tonic::Code;

use crate::console::{
    Console,
    fault::PageError,
    filters,
    form::FormPost,
    frame::Frame,
    labels::{self, StyledWord},
    visitor::{Visitor, is_here},
};
use callgate_proto::v1::{
    CallFilter, Decision, GetSessionStateRequest, HaltRequest, HaltScope, HaltState, ListHaltsRequest,
    ListSessionsRequest, OutcomeStatus, ResumeRequest, Role, SessionStatus, SessionSummary,
    gate_service_client::GateServiceClient, session_service_client::SessionServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/sessions";

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list).post(stop))
}

/// Search by the parameters of the page's address.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Search {
    q: String,
    agent: String,
    tool: String,
    decision: String,
    rule: String,
    reason: String,
    outcome: String,
    state: String,
    /// Hours back; empty for all.
    hours: String,
    after: String,
    done: String,
    part: String,
}

/// Words of a form, with their values.
const DECISIONS: [(&str, Decision); 6] = [
    ("ALLOW", Decision::Allow),
    ("ASK", Decision::Ask),
    ("WAIT", Decision::Wait),
    ("REUSE", Decision::Reuse),
    ("DENY", Decision::Deny),
    ("STOP", Decision::Stop),
];
const OUTCOMES: [(&str, OutcomeStatus); 5] = [
    ("running", OutcomeStatus::Running),
    ("success", OutcomeStatus::Success),
    ("error", OutcomeStatus::Error),
    ("cancelled", OutcomeStatus::Cancelled),
    ("unknown", OutcomeStatus::Unknown),
];
const STATES: [(&str, SessionStatus); 5] = [
    ("halted", SessionStatus::Halted),
    ("held", SessionStatus::Held),
    ("running", SessionStatus::Calling),
    ("stopped", SessionStatus::Stopped),
    ("idle", SessionStatus::Idle),
];
const HOURS: [(&str, &str); 4] =
    [("1", "last hour"), ("24", "last day"), ("168", "last week"), ("720", "last 30 days")];

fn parse_name<T: Copy + Into<i32>>(field: &str, known: &[(&str, T)], name: &str) -> Result<i32, PageError> {
    if name.is_empty() {
        return Ok(0);
    }
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, member)| (*member).into());
    found.ok_or_else(|| PageError::field(format!("{field}: {name} is none of the choices")))
}

impl Search {
    fn is_empty(&self) -> bool {
        let Self { q, agent, tool, decision, rule, reason, outcome, state, hours, .. } = self;
        [q, agent, tool, decision, rule, reason, outcome, state, hours].iter().all(|field| field.is_empty())
    }

    fn request(&self, now_ms: i64) -> Result<ListSessionsRequest, PageError> {
        let start_time = match self.hours.as_str() {
            "" => None,
            hours => {
                let hours: i64 = hours.parse().map_err(|_| PageError::field("hours: must be a whole number"))?;
                Some(Timestamp {
                    seconds: (now_ms / 1_000).saturating_sub(hours.saturating_mul(3_600)).max(0),
                    nanos: 0,
                })
            }
        };
        let calls = CallFilter {
            agent_id: self.agent.trim().to_owned(),
            tool: self.tool.trim().to_owned(),
            decision: parse_name("decision", &DECISIONS, &self.decision)?,
            rule: self.rule.trim().to_owned(),
            reason: self.reason.trim().to_owned(),
            status: parse_name("outcome", &OUTCOMES, &self.outcome)?,
            text: self.q.trim().to_owned(),
            start_time,
            ..CallFilter::default()
        };
        let status = parse_name("state", &STATES, &self.state)?;
        let calls = (calls != CallFilter::default()).then_some(calls);
        Ok(ListSessionsRequest { page_size: 50, page_token: self.after.clone(), calls, status })
    }

    /// The address of the same search, behind a page.
    fn path(&self, after: &str) -> String {
        let Self { q, agent, tool, decision, rule, reason, outcome, state, hours, .. } = self;
        let fields = [
            ("q", q.as_str()),
            ("agent", agent),
            ("tool", tool),
            ("decision", decision),
            ("rule", rule),
            ("reason", reason),
            ("outcome", outcome),
            ("state", state),
            ("hours", hours),
            ("after", after),
        ];
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(fields.into_iter().filter(|(_, value)| !value.is_empty()));
        let query = query.finish();
        if query.is_empty() { PATH.to_owned() } else { format!("{PATH}?{query}") }
    }
}

#[derive(Template)]
#[template(path = "sessions.html", blocks = ["found"])]
struct Page {
    frame: Frame,
    search: Search,
    rows: Vec<SessionRow>,
    /// Path of the next page; empty after the last one.
    next: String,
    /// Start of the scanned time; none where all was scanned.
    since: Option<Timestamp>,
    is_sealed: bool,
    /// The page without a filter, which keeps itself up to date.
    is_live: bool,
    halts: Vec<ActiveHalt>,
    is_operator: bool,
    done: &'static str,
    fault: Option<String>,
    halting: Halting,
}

struct SessionRow {
    session: SessionSummary,
    standing: StyledWord,
    decision: StyledWord,
}

/// A halt that holds.
pub(super) struct ActiveHalt {
    pub(super) halt: HaltState,
    pub(super) what: &'static str,
    pub(super) scope: i32,
}

impl ActiveHalt {
    pub(super) fn new(halt: HaltState) -> Self {
        Self { what: labels::halt_scope(halt.scope()), scope: halt.scope, halt }
    }
}

/// Message for a done action, by its word in an address.
pub(super) fn describe_action(word: &str) -> &'static str {
    match word {
        "halted-unknown" => "Halted. No session of this name has made a call yet: check the name.",
        "halted" => "Halted: on this server at once, on all others within two seconds. Resume ends it.",
        "resumed" => "Resumed.",
        "granted" => "Granted. Revoke ends the grant; calls that it allowed stay allowed.",
        "revoked" => "Grant revoked.",
        "raised" => "Budget raised. Sessions that it stopped continue with their next call. 0 removes the raise.",
        "settled" => "Outcome stored. It cannot be changed.",
        "phase" => "Phase set. To go back, set the previous phase, where the policy allows it.",
        _ => "",
    }
}

async fn list(visitor: Visitor, Query(search): Query<Search>) -> Result<Response, PageError> {
    page(&visitor, search, None, Halting::default()).await
}

async fn page(
    visitor: &Visitor,
    search: Search,
    fault: Option<PageError>,
    halting: Halting,
) -> Result<Response, PageError> {
    let mut sessions = SessionServiceClient::new(visitor.calls.clone());
    let mut stopped = sessions.clone();
    let (found, halts) = try_join!(
        sessions.list_sessions(search.request(visitor.now.as_millis())?),
        stopped.list_halts(ListHaltsRequest { page_size: 500, ..Default::default() }),
    )?;
    let (found, halts) = (found.into_inner(), halts.into_inner().halts);
    let searched = found.searched_range.unwrap_or_default();
    let row = |session: SessionSummary| SessionRow {
        standing: labels::standing(session.status()),
        decision: labels::decision(session.last_decision()),
        session,
    };
    let page = Page {
        frame: Frame::new(visitor, PATH, "Sessions"),
        rows: found.sessions.into_iter().map(row).collect(),
        next: match found.next_page_token.as_str() {
            "" => String::new(),
            next => search.path(next),
        },
        since: searched.since_time,
        is_sealed: searched.has_encrypted_arguments,
        is_live: search.is_empty() && search.after.is_empty(),
        halts: halts.into_iter().map(ActiveHalt::new).collect(),
        is_operator: visitor.is_one_of(&[Role::Operator]),
        done: describe_action(&search.done),
        fault: fault.as_ref().map(|fault| fault.message().to_owned()),
        halting,
        search,
    };
    let html = match page.search.part.as_str() {
        "found" => page.as_found().render()?,
        _ => page.render()?,
    };
    Ok((fault.map_or(http::StatusCode::OK, |fault| fault.code()), Html(html)).into_response())
}

/// A form about halts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Halting {
    what: String,
    scope: String,
    name: String,
    reason: String,
    /// The page to come back to.
    back: String,
}

impl Halting {
    async fn apply(&self, visitor: &Visitor) -> Result<&'static str, PageError> {
        let scope: i32 = self.scope.parse().map_err(|_| PageError::field("scope: choose what to halt"))?;
        let (name, reason) = (self.name.trim().to_owned(), self.reason.trim().to_owned());
        let mut sessions = SessionServiceClient::new(visitor.calls.clone());
        match self.what.as_str() {
            // Every halted agent reads it.
            "halt" if reason.is_empty() => Err(PageError::field("reason: required; models and users get it")),
            "halt" => {
                let what = HaltRequest { scope, name: name.clone(), reason };
                sessions.halt(what).await?;
                // A misspelt name halts nothing, and the operator should know.
                let asked = GetSessionStateRequest { session_id: name, last_calls: 1, summary_tokens: 0 };
                let mut gate = GateServiceClient::new(visitor.calls.clone());
                let is_unknown = scope == HaltScope::Session as i32
                    && gate.get_session_state(asked).await.is_err_and(|status| status.code() == Code::NotFound);
                Ok(if is_unknown { "halted-unknown" } else { "halted" })
            }
            "resume" => {
                sessions.resume(ResumeRequest { scope, name, reason }).await?;
                Ok("resumed")
            }
            _ => Err(PageError::field("what: is no action of this form")),
        }
    }
}

async fn stop(FormPost { visitor, form }: FormPost<Halting>) -> Result<Response, PageError> {
    match form.apply(&visitor).await {
        Ok(done) => {
            let back = if is_here(&form.back) { form.back.as_str() } else { PATH };
            let sign = if back.contains('?') { '&' } else { '?' };
            Ok(Redirect::to(&format!("{back}{sign}done={done}")).into_response())
        }
        Err(fault) => page(&visitor, Search::default(), Some(fault), form).await,
    }
}

/// Scopes of a halt, by their code.
const SCOPES: [(i32, &str); 4] = [
    (HaltScope::Session as i32, "a session, with its sub-agents"),
    (HaltScope::Agent as i32, "an agent, in every session"),
    (HaltScope::Tool as i32, "a tool, in every session"),
    (HaltScope::Tenant as i32, "everything"),
];
