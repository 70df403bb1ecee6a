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
use tonic::{Code, Status};
use url::form_urlencoded;

use super::session_search::{DECISIONS, HOURS, OUTCOMES, STATES, Search};
use crate::console::{
    Console,
    fault::PageError,
    filters,
    form::FormPost,
    frame::Frame,
    labels::{self, StyledWord},
    visitor::{Visitor, is_here},
};
use callgate_core::{domain::reason::Reason, rules::RULES};
use callgate_proto::{
    time::unix_ms,
    v1::{
        GetSessionRequest, GetSessionStateRequest, HaltRequest, HaltScope, HaltState, ListHaltsRequest,
        ListNamesRequest, ListSessionsResponse, NameKind, ResumeRequest, Role, SessionSummary,
        gate_service_client::GateServiceClient, session_service_client::SessionServiceClient,
    },
};

/// Its link.
pub(super) const PATH: &str = "/sessions";

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list).post(stop))
}

/// Sessions of a page.
pub(super) const PAGE: usize = 50;
/// Users and agents that are linked, each: those with the latest calls.
const LINKED: u32 = 100;
/// Answers in a row that a page asks for by itself: a bound of the time that it searches.
const ANSWERS_MAX: u32 = 20;

#[derive(Template)]
#[template(path = "sessions.html", blocks = ["found", "more"])]
struct Page {
    frame: Frame,
    search: Search,
    rows: Vec<SessionRow>,
    /// The only row is the session of this very id.
    is_exact: bool,
    /// The same search for the text.
    anyway: String,
    /// Path of the next page; empty after the last one.
    next: String,
    /// A search that goes on by itself.
    progress: Option<Progress>,
    columns: [Column; 4],
    /// Start of the scanned time; none where all was scanned.
    since: Option<Timestamp>,
    is_sealed: bool,
    is_name_prefix: bool,
    /// The page without a filter, which keeps itself up to date.
    is_live: bool,
    halts: Vec<ActiveHalt>,
    is_operator: bool,
    done: &'static str,
    fault: Option<String>,
    halting: Halting,
}

/// Progress of a search.
struct Progress {
    searched: u64,
    left: u64,
    trees: u64,
    /// Address of the next answer; empty: the page asks for no more by itself.
    next: String,
}

impl Progress {
    /// None where an answer is as long as a page, or the search is complete.
    fn new(search: &Search, found: &ListSessionsResponse) -> Option<Self> {
        let left = found.searched_range.as_ref().map_or(0, |range| range.remaining_call_trees);
        if found.next_page_token.is_empty() || search.is_empty() || found.sessions.len() >= PAGE {
            return None;
        }
        // Those of the first answer are not counted: it has none to begin with.
        let trees = search.trees.max(left);
        let (answers, begun) = ((search.answers + 1).to_string(), trees.to_string());
        let fields = [("after", found.next_page_token.as_str()), ("answers", &answers), ("trees", &begun)];
        let fields = fields.into_iter().chain([("part", "more")]);
        let next =
            if search.answers + 1 < ANSWERS_MAX { search.path(&fields.collect::<Vec<_>>()) } else { String::new() };
        Some(Self { searched: trees - left, left, trees, next })
    }
}

/// A column by which the list is sorted.
struct Column {
    name: &'static str,
    path: String,
    is_sorted: bool,
}

impl Column {
    fn new(search: &Search, sort: &str, name: &'static str) -> Self {
        Self { name, path: search.path(&[("sort", sort)]), is_sorted: search.sort == sort }
    }
}

struct SessionRow {
    session: SessionSummary,
    took: String,
    standing: StyledWord,
    decision: StyledWord,
}

/// From the first event of a session to the last one of its call tree.
pub(super) fn lasted(session: &SessionSummary) -> String {
    let lasted = unix_ms(session.update_time.as_ref()).saturating_sub(unix_ms(session.create_time.as_ref()));
    labels::exact_span(u64::try_from(lasted).unwrap_or(0))
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

/// The session whose id is searched, read by its key; none where there is no such session.
async fn exact(visitor: &Visitor, search: &Search) -> Result<Option<SessionSummary>, Status> {
    let Some(id) = search.id() else { return Ok(None) };
    let asked = GetSessionRequest { session_id: id.to_owned() };
    match SessionServiceClient::new(visitor.calls.clone()).get_session(asked).await {
        Ok(found) => Ok(found.into_inner().session),
        // A text may be longer than an id.
        Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => Ok(None),
        Err(status) => Err(status),
    }
}

/// Names for a field, as the options of its list.
#[derive(Template)]
#[template(source = "{% for name in names %}<option>{{ name|visible_text }}</option>{% endfor %}", ext = "html")]
struct Suggestions {
    names: Vec<String>,
}

impl Suggestions {
    async fn of(visitor: &Visitor, kind: NameKind, text: &str) -> Result<Self, PageError> {
        let asked = ListNamesRequest { kind: kind.into(), text: text.trim().to_owned(), max_names: 20 };
        let found = SessionServiceClient::new(visitor.calls.clone()).list_names(asked).await?.into_inner();
        Ok(Self { names: found.names.into_iter().map(|entry| entry.name).collect() })
    }
}

/// Users and agents, each as a link to their sessions.
#[derive(Template)]
#[template(path = "names.html", blocks = ["links"])]
struct Names {
    frame: Frame,
    /// Title and kind, and names with their addresses.
    lists: [(&'static str, Vec<(String, String)>); 2],
}

impl Names {
    async fn read(visitor: &Visitor) -> Result<Self, PageError> {
        let of = async |kind: NameKind, field: &str| {
            let asked = ListNamesRequest { kind: kind.into(), text: String::new(), max_names: LINKED };
            let found = SessionServiceClient::new(visitor.calls.clone()).list_names(asked).await?.into_inner();
            let link = |name: String| {
                let value: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
                (name, format!("{PATH}?{field}={value}"))
            };
            Ok::<_, PageError>(found.names.into_iter().map(|entry| link(entry.name)).collect::<Vec<_>>())
        };
        let (users, agents) = try_join!(of(NameKind::User, "user"), of(NameKind::Agent, "agent"))?;
        let frame = Frame::new(visitor, PATH, "Users and agents");
        Ok(Self { frame, lists: [("Users", users), ("Agents", agents)] })
    }
}

async fn list(visitor: Visitor, Query(search): Query<Search>) -> Result<Response, PageError> {
    let field = match search.part.as_str() {
        "agents" => Some((NameKind::Agent, &search.agent)),
        "users" => Some((NameKind::User, &search.user)),
        "tools" => Some((NameKind::Tool, &search.tool)),
        _ => None,
    };
    if search.part == "names" || search.part == "links" {
        let names = Names::read(&visitor).await?;
        let html = if search.part == "links" { names.as_links().render()? } else { names.render()? };
        return Ok(Html(html).into_response());
    }
    if let Some((kind, text)) = field {
        return Ok(Html(Suggestions::of(&visitor, kind, text).await?.render()?).into_response());
    }
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
    let request = search.request(visitor.now.as_millis())?;
    let found = async {
        match exact(visitor, &search).await? {
            Some(session) => Ok((ListSessionsResponse { sessions: vec![session], ..Default::default() }, true)),
            None => sessions.list_sessions(request).await.map(|found| (found.into_inner(), false)),
        }
    };
    let halts = stopped.list_halts(ListHaltsRequest { page_size: 500, ..Default::default() });
    let ((found, is_exact), halts) = try_join!(found, halts)?;
    let halts = halts.into_inner().halts;
    let progress = Progress::new(&search, &found);
    let searched = found.searched_range.unwrap_or_default();
    let row = |session: SessionSummary| SessionRow {
        standing: labels::standing(session.status()),
        decision: labels::decision(session.last_decision()),
        took: lasted(&session),
        session,
    };
    let columns = [("calls", "Calls"), ("cost", "Cost"), ("duration", "Duration"), ("", "Last activity")];
    let page = Page {
        frame: Frame::new(visitor, PATH, "Sessions"),
        rows: found.sessions.into_iter().map(row).collect(),
        is_exact,
        anyway: search.path(&[("by", "text")]),
        next: match found.next_page_token.as_str() {
            "" => String::new(),
            next => search.path(&[("after", next)]),
        },
        progress,
        columns: columns.map(|(sort, name)| Column::new(&search, sort, name)),
        since: searched.since_time,
        is_sealed: searched.has_encrypted_arguments,
        is_name_prefix: searched.name_prefix_only,
        is_live: search.is_empty() && search.sort.is_empty() && search.after.is_empty(),
        halts: halts.into_iter().map(ActiveHalt::new).collect(),
        is_operator: visitor.is_one_of(&[Role::Operator]),
        done: describe_action(&search.done),
        fault: fault.as_ref().map(|fault| fault.message().to_owned()),
        halting,
        search,
    };
    let html = match page.search.part.as_str() {
        "found" => page.as_found().render()?,
        "more" => page.as_more().render()?,
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
