//! `POST /hooks/claude-code`: Claude Code's hooks without a program on the agent's machine.
//!
//! The host lets a tool run after every answer but a denial in JSON. So a call that must not run gets that denial after
//! any failure: an invalid credential, an unavailable database, an unreadable request.

use std::{collections::BTreeMap, convert::Infallible, num::NonZeroUsize, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::timeout;
use tonic::{Status, body::Body, codegen::http as wire};

use super::{
    cancel_on_drop::CancelOnDrop,
    limits::MESSAGE_BYTES_MAX,
    service::{self, GateService},
    sessions::SessionService,
    shortcut::ServiceResponse,
    shutdown::Stop,
    status,
};
use crate::{gate::Approvals, web::CLAUDE_CODE};
use callgate_agent::{
    hooks::{HookMemory, HookServer, HookSettings, answer_event, is_away, leave},
    hosts::{self, HookOutput, Host, HostEvent, HostFile},
};
use callgate_core::domain::{audit::Actor, identity::Identity, ids::TenantId};
use callgate_proto::{v1, v1::session_service_server::SessionService as _};

/// Longest time for a request to come in.
const COMES_WITHIN: Duration = Duration::from_secs(20);
/// The host gives its hook up later than that, in seconds, unless the URL says otherwise (`?timeout=`).
const SOONER_S: u64 = 10;
/// Limit of remembered sessions, for hosts that send less.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// The event before a tool.
const BEFORE: &str = "PreToolUse";

/// Handler of the route.
#[derive(Debug, Clone)]
pub(super) struct Hooks {
    pub(super) approvals: Arc<Approvals>,
    pub(super) calls: GateService,
    pub(super) sessions: SessionService,
    pub(super) stop: Stop,
    pub(super) known: SessionMemory,
}

/// This replica's memory of sessions. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct SessionMemory(Arc<Mutex<BySession>>);

/// By tenant and session.
type BySession = LruCache<(TenantId, String), SessionEntry>;

#[derive(Debug, Default, Clone)]
struct SessionEntry {
    /// User turns so far.
    runs: u64,
    /// True while the model is owed a summary.
    owes: bool,
    /// Calls that the host's user is asked about.
    asked: BTreeMap<String, String>,
    /// Tools whose calls are at the host's prompt.
    at_prompt: Vec<String>,
}

impl Default for SessionMemory {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LruCache::new(REMEMBERED_MAX))))
    }
}

/// The route.
pub(super) fn router(hooks: Hooks) -> Router {
    Router::new().route(CLAUDE_CODE, post(claude_code)).with_state(hooks)
}

async fn claude_code(State(hooks): State<Hooks>, request: Request) -> Response {
    let _owed = hooks.stop.owe();
    let host = Host::ClaudeCode;
    let (head, body) = request.into_parts();
    let is_json =
        head.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json {
        // A page of another site can send anything else.
        return deny_tool("the request is no application/json");
    }
    let read = timeout(COMES_WITHIN, Limited::new(body, MESSAGE_BYTES_MAX).collect()).await;
    let Ok(Ok(body)) = read else { return deny_tool("the request is larger than 4 MiB, or did not come in") };
    let seen = match host.read(&String::from_utf8_lossy(&body.to_bytes())) {
        Ok(seen) => seen,
        Err(unreadable) if unreadable.is_before => return deny_tool(&unreadable.problem),
        Err(_) => return json_of(String::new()),
    };
    let Some(identity) = head.extensions.get::<Arc<Identity>>().cloned() else { return deny_tool("nobody is known") };
    let (tenant, now, handed) =
        (identity.tenant, hooks.approvals.store.now().as_millis(), CancelOnDrop::new(&hooks.calls, &identity));
    let remembered = RememberedCall { known: &hooks.known, tenant, now, handed: &handed };
    let (name, is_before) = (seen.name.clone(), matches!(seen.event, HostEvent::Before(_)));
    let installed = parse_settings(head.uri.query().unwrap_or_default());
    let plane = InternalServer { hooks: &hooks, identity, headers: head.headers };
    match Box::pin(answer_event(&plane, &remembered, &installed, seen)).await {
        Ok(answer) => handed.complete_when_sent(json_of(host.to_output(&name, &answer).out)),
        Err(status) if is_before => {
            // Where a store did not answer, it may have been permitted.
            if !is_away(&status) {
                handed.over();
            }
            deny_tool(status.message())
        }
        Err(status) => json_of(json!({"systemMessage": describe_unrecorded(&name, &status)}).to_string()),
    }
}

fn describe_unrecorded(name: &str, status: &Status) -> String {
    format!("callgate: {name} was not recorded: {}", status.message())
}

/// Settings of a hook by the query of its URL: `?agent=NAME&timeout=SECONDS&grant`.
fn parse_settings(query: &str) -> HookSettings {
    let mut seconds = Host::ClaudeCode.patience_s();
    let mut installed = HookSettings {
        host: Host::ClaudeCode,
        agent: String::new(),
        grant: false,
        never_restarts: true,
        hears_before: true,
        prompts: true,
        patience: Duration::ZERO,
    };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "agent" => installed.agent = value.into_owned(),
            "grant" => installed.grant = true,
            "timeout" => seconds = value.parse().unwrap_or(seconds).min(86_400),
            _ => {}
        }
    }
    installed.patience = Duration::from_secs(seconds.saturating_sub(SOONER_S).max(1));
    installed
}

fn json_of(out: String) -> Response {
    let out = if out.is_empty() { "{}".to_owned() } else { out };
    ([(header::CONTENT_TYPE, "application/json")], crate::web::guard_headers(), out).into_response()
}

/// The tool must not run.
fn deny_tool(why: &str) -> Response {
    let why = format!("The tool must not run, since callgate could not be asked: {why}");
    let HookOutput { out, .. } =
        Host::ClaudeCode.to_output(BEFORE, &hosts::HostAnswer::Refuse(hosts::truncate_text(&why)));
    json_of(out)
}

/// An answer that the host takes for one: any other becomes a denial. The event is not read, since the caller may be
/// unauthorized; to an event without a tool a denial is an error that the host shows.
pub(super) fn always_an_answer(answer: ServiceResponse) -> ServiceResponse {
    Box::pin(async move {
        let Ok::<_, Infallible>(response) = answer.await;
        let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if response.status() == StatusCode::OK && kind == Some(b"application/json") {
            return Ok(response);
        }
        let why = match Status::from_header_map(response.headers()) {
            Some(status) => status.message().to_owned(),
            None => {
                let body = Limited::new(response.into_body(), 4 << 10).collect().await;
                let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned());
                text.unwrap_or_default()
            }
        };
        Ok(deny_tool(&why).map(Body::new))
    })
}

/// The in-process backend of a hook.
struct InternalServer<'a> {
    hooks: &'a Hooks,
    identity: Arc<Identity>,
    headers: HeaderMap,
}

impl InternalServer<'_> {
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.extensions_mut().insert(Arc::clone(&self.identity));
        request
    }

    /// Rejects a tenant that is not served.
    fn is_served(&self) -> Result<(), Status> {
        self.hooks.approvals.server.admits(self.identity.tenant).map_err(status::gate)
    }
}

impl HookServer for InternalServer<'_> {
    async fn evaluate(&self, ask: v1::EvaluateRequest) -> Result<v1::EvaluateResponse, Status> {
        self.is_served()?;
        self.hooks.calls.evaluate_message(&self.identity, ask, &self.headers, None).await
    }

    async fn record(&self, report: v1::RecordRequest) -> Result<v1::RecordResponse, Status> {
        self.hooks.calls.record_message(&self.identity, report, &self.headers, None).await
    }

    async fn session_state(&self, ask: v1::GetSessionStateRequest) -> Result<v1::GetSessionStateResponse, Status> {
        self.is_served()?;
        self.hooks.calls.session_state(&self.identity, ask).await
    }

    async fn withdraw(&self, session: &str, approval_id: String) -> Result<(), Status> {
        self.is_served()?;
        let (by, reason) = (Actor::of(&self.identity, session), "no yes at the host's prompt".to_owned());
        let withdrawn = self.hooks.approvals.withdraw(self.identity.tenant, &approval_id, by, Some(reason));
        service::answer_in_time(Box::pin(withdrawn)).await.map(drop)
    }

    async fn mark_compacted(&self, told: v1::MarkCompactedRequest) -> Result<v1::MarkCompactedResponse, Status> {
        self.is_served()?;
        self.hooks.sessions.mark_compacted(self.request(told)).await.map(tonic::Response::into_inner)
    }
}

struct RememberedCall<'a> {
    known: &'a SessionMemory,
    tenant: TenantId,
    now: i64,
    handed: &'a CancelOnDrop,
}

impl RememberedCall<'_> {
    fn with<T>(&self, session: &str, change: impl FnOnce(&mut SessionEntry) -> T) -> T {
        let mut known = self.known.0.lock();
        change(known.get_or_insert_mut((self.tenant, session.to_owned()), Default::default))
    }

    /// Reads the entry of a session; the default for an unknown one.
    fn read_entry<T: Default>(&self, session: &str, look: impl FnOnce(&SessionEntry) -> T) -> T {
        let known = self.known.0.lock();
        known.peek(&(self.tenant, session.to_owned())).map(look).unwrap_or_default()
    }
}

impl HookMemory for RememberedCall<'_> {
    fn run(&self, session: &str) -> Option<String> {
        let runs = self.read_entry(session, |known| known.runs);
        (runs > 0).then(|| format!("turn-{runs}"))
    }

    fn begin_run(&self, session: &str) {
        self.with(session, |known| known.runs += 1);
    }

    fn begins(&self, cancellation: &v1::RecordRequest) {
        self.handed.asks(cancellation);
    }

    // The answer is still to be handed over.
    fn is_answered(&self) {}

    fn owe(&self, session: &str) {
        self.with(session, |known| known.owes = true);
    }

    fn is_owed(&self, session: &str) -> bool {
        self.read_entry(session, |known| known.owes) && self.with(session, |known| std::mem::take(&mut known.owes))
    }

    /// Claude Code hears at once.
    fn keep(&self, _: &str, _: &str) {}

    fn take_kept_texts(&self, _: &str) -> Option<String> {
        None
    }

    fn ask(&self, session: &str, call_id: &str, question: &str) {
        self.with(session, |known| drop(known.asked.insert(call_id.to_owned(), question.to_owned())));
    }

    fn take_request(&self, session: &str, call_id: &str) -> Option<String> {
        let is_asked = self.read_entry(session, |known| known.asked.contains_key(call_id));
        is_asked.then(|| self.with(session, |known| known.asked.remove(call_id)))?
    }

    fn take_unanswered_requests(&self, session: &str) -> Vec<String> {
        if !self.read_entry(session, |known| !known.asked.is_empty()) {
            return Vec::new();
        }
        let asked = self.with(session, |known| std::mem::take(&mut known.asked));
        asked.into_values().collect()
    }

    fn at_prompt(&self, session: &str, tool: &str) {
        self.with(session, |known| known.at_prompt.push(tool.to_owned()));
    }

    fn has_run(&self, session: &str, tool: &str) {
        if self.read_entry(session, |known| known.at_prompt.iter().any(|waiting| waiting == tool)) {
            self.with(session, |known| leave(&mut known.at_prompt, tool));
        }
    }

    fn left_at_prompt(&self, session: &str) -> Vec<String> {
        if !self.read_entry(session, |known| !known.at_prompt.is_empty()) {
            return Vec::new();
        }
        self.with(session, |known| std::mem::take(&mut known.at_prompt))
    }

    fn forget(&self, session: &str) {
        if !self.read_entry(session, |known| known.owes) {
            let mut known = self.known.0.lock();
            known.pop(&(self.tenant, session.to_owned()));
        }
    }

    /// The agent's files are on another machine.
    fn witness(&self, _: &HostFile) -> Option<String> {
        None
    }

    fn stamp(&self) -> String {
        self.now.to_string()
    }
}

/// True for a request of a Claude Code hook.
pub(super) fn is_hook(request: &wire::Request<Body>) -> bool {
    request.uri().path() == CLAUDE_CODE && request.method() == http::Method::POST
}
