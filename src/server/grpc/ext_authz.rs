//! Envoy's external authorization for MCP servers behind Envoy: each `tools/call` in a request's body is judged before
//! Envoy forwards the request.
//!
//! Envoy reports no outcome. So a permitted call is recorded as unknown at once: a lease that stays open would hold
//! back the same call, a read too, until it expires.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tonic::{Code, Request, Response, Status};
use uuid::Uuid;

use super::{
    MethodResult,
    cancel_on_drop::CancelOnDrop,
    identity,
    service::{GateService, parse_timeout},
    shutdown::Stop,
    status,
};
use crate::gate::ServerState;
use callgate_agent::{
    hooks::is_away,
    mcp::{
        answer,
        call::ToolsCall,
        events,
        message::{self, LineKind, Message, TOOLS_CALL},
    },
    proxy::{is_plain, qualify_tool_name, takes},
};
use callgate_core::domain::identity::Identity;
use callgate_proto::{
    envoy::{
        AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, HeaderValue as EnvoyHeaderValue,
        HeaderValueOption, HttpStatus, attribute_context::HttpRequest, authorization_server::Authorization,
        check_response::HttpResponse,
    },
    time::duration,
    v1::{self, Decision, OutcomeStatus},
};

/// Header of the session, unless the route's `session_header` names another one.
const SESSION: &str = "mcp-session-id";
/// Envoy's header of a body that it has cut off.
const PARTIAL: &str = "x-envoy-auth-partial-body";
/// Maximum wait for an approver: most MCP clients time out after 60 seconds.
const WAIT_MAX: Duration = Duration::from_secs(50);
/// Margin before Envoy's timeout, for the answer.
const SOONER: Duration = Duration::from_secs(2);
/// Maximum number of calls in one body.
const CALLS_MAX: usize = 64;

/// The service.
#[derive(Debug)]
pub(super) struct ExtAuthz {
    pub(super) calls: GateService,
    pub(super) server: Arc<ServerState>,
    pub(super) stop: Stop,
}

/// A request of an MCP client.
struct McpRequest<'a> {
    identity: &'a Arc<Identity>,
    metadata: &'a HeaderMap,
    caller: v1::Caller,
    /// Name of the MCP server, for the names of its tools; empty without one.
    server_name: &'a str,
    session_header: &'a str,
    /// Time until Envoy's timeout, if it has one.
    left: Option<Duration>,
    /// Maximum wait for a better verdict.
    wait: Duration,
}

/// A permitted call, with its cancellation. Dropped before the answer, it is cancelled.
struct PermittedCall {
    cancellation: v1::RecordRequest,
    handed: CancelOnDrop,
}

/// Text for the model about a call that does not run, and whether it is an error.
type Refusal = (String, bool);

#[tonic::async_trait]
impl Authorization for ExtAuthz {
    async fn check(&self, request: Request<CheckRequest>) -> MethodResult<CheckResponse> {
        let _owed = self.stop.owe();
        let identity = identity::of(&request)?;
        self.server.admits(identity.tenant).map_err(status::gate)?;
        let (metadata, _, message) = request.into_parts();
        let AttributeContext { request, context_extensions } = message.attributes.unwrap_or_default();
        let http = request.and_then(|request| request.http).unwrap_or_default();
        let headers = read_headers(&http);
        let body = match read_body(&http, &headers) {
            Ok(None) => return Ok(Response::new(forward())),
            Ok(Some(body)) => body,
            Err((code, why)) => return Ok(Response::new(deny(code, "text/plain", format!("callgate: {why}\n")))),
        };
        let (messages, is_one) = match message::read(body) {
            LineKind::One(message) => (vec![message], true),
            LineKind::Batch(messages) => (messages, false),
            // A server may read more than this does.
            LineKind::Noise | LineKind::Unreadable => {
                let why = "callgate refuses this body, which may be a call of a tool: it is not a message in UTF-8, or \
                           has a duplicate name";
                return Ok(Response::new(deny(StatusCode::BAD_REQUEST, JSON, answer::unreadable(why))));
            }
        };
        let extension = |name: &str| context_extensions.get(name).map_or("", String::as_str);
        let session_header = Some(extension("session_header")).filter(|name| !name.is_empty()).unwrap_or(SESSION);
        let session = headers.get(session_header.to_ascii_lowercase()).and_then(|value| value.to_str().ok());
        let caller = v1::Caller {
            session_id: session.filter(|id| !id.is_empty()).map(|id| format!("mcp-{id}")).unwrap_or_default(),
            agent_id: extension("agent_id").to_owned(),
            host: "envoy".to_owned(),
            ..v1::Caller::default()
        };
        let left = parse_timeout(metadata.as_ref());
        // The calls of a batch would wait for each other.
        let wait = left.filter(|_| is_one).map(|left| left.saturating_sub(SOONER).min(WAIT_MAX));
        let asked = McpRequest {
            identity: &identity,
            metadata: metadata.as_ref(),
            caller,
            server_name: extension("server_name"),
            session_header,
            left,
            wait: wait.unwrap_or_default(),
        };
        let response = match self.judge(&asked, &messages).await {
            None => forward(),
            Some(answers) if takes(&headers, JSON) => {
                let body = if is_one { answers.concat() } else { format!("[{}]", answers.join(",")) };
                deny(StatusCode::OK, JSON, body)
            }
            Some(answers) => {
                let events = answers.iter().map(|one| events::event(one)).collect();
                deny(StatusCode::OK, "text/event-stream", events)
            }
        };
        Ok(Response::new(response))
    }
}

impl ExtAuthz {
    /// Judges all calls of a body. None if all may run, else the answers to the whole body, since Envoy forwards a body
    /// whole or not at all.
    async fn judge(&self, asked: &McpRequest<'_>, messages: &[Message<'_>]) -> Option<Vec<String>> {
        let mut permitted = Vec::new();
        let mut refused: Option<(usize, Refusal)> = None;
        let calls = messages.iter().enumerate().filter(|(_, message)| message.is(TOOLS_CALL));
        for (count, (at, message)) in calls.enumerate() {
            let judged = match ToolsCall::read(message) {
                _ if count == CALLS_MAX => Err(unjudged(&format!("its body has more than {CALLS_MAX} calls"))),
                _ if asked.caller.session_id.is_empty() => Err(unjudged(&format!(
                    "the request has no header {}, by which callgate knows the session",
                    asked.session_header
                ))),
                Ok(call) => self.evaluate(asked, call).await,
                Err(problem) => Err(unjudged(problem)),
            };
            match judged {
                Ok(call) => permitted.push(call),
                Err(refusal) => {
                    refused = Some((at, refusal));
                    break;
                }
            }
        }
        let outcome = match &refused {
            None => v1::RecordRequest { status: OutcomeStatus::Unknown.into(), ..v1::RecordRequest::default() },
            Some(_) => v1::RecordRequest {
                status: OutcomeStatus::Cancelled.into(),
                not_started: true,
                ..v1::RecordRequest::default()
            },
        };
        for call in permitted {
            self.settle(asked, call, &outcome).await;
        }
        let (refused_at, (text, is_error)) = refused?;
        let answers = messages.iter().enumerate().filter(|(_, message)| message.method.is_some());
        let answers = answers.filter_map(|(at, message)| match (&message.id, message.is(TOOLS_CALL)) {
            (Some(id), true) if at == refused_at => Some(answer::result(id, &text, is_error)),
            (Some(id), true) => Some(answer::result(id, &unjudged(NOT_ALONE).0, true)),
            (Some(id), false) => Some(answer::render_server_lost(id, NOT_ALONE)),
            (None, _) => (at == refused_at).then(|| answer::unreadable(&text)),
        });
        Some(answers.collect())
    }

    /// The permit for a call, or the text for the model.
    async fn evaluate(&self, asked: &McpRequest<'_>, call: ToolsCall) -> Result<PermittedCall, Refusal> {
        let tool = match asked.server_name {
            "" => call.tool,
            server => qualify_tool_name(server, &call.tool),
        };
        // A client may choose its request ids, and X-Request-Id, and repeat them.
        let call_id = Uuid::now_v7().to_string();
        let wait = (!asked.wait.is_zero()).then(|| duration(u64::try_from(asked.wait.as_millis()).unwrap_or(0)));
        let cancellation = v1::RecordRequest {
            caller: Some(asked.caller.clone()),
            call_id: call_id.clone(),
            status: OutcomeStatus::Cancelled.into(),
            ..v1::RecordRequest::default()
        };
        let handed = CancelOnDrop::new(&self.calls, asked.identity);
        handed.asks(&cancellation);
        let call = v1::ToolCall { call_id, tool, arguments_json: call.arguments, ..v1::ToolCall::default() };
        let question = v1::EvaluateRequest {
            caller: Some(asked.caller.clone()),
            call: Some(call),
            max_wait: wait,
            ..v1::EvaluateRequest::default()
        };
        let verdict = match self.calls.evaluate_message(asked.identity, question, asked.metadata, asked.left).await {
            Ok(answer) => answer.verdict.unwrap_or_default(),
            Err(status) => {
                if !is_away(&status) {
                    handed.over();
                }
                return Err(refuse_status(&status));
            }
        };
        let permitted = PermittedCall { cancellation, handed };
        if verdict.decision() != Decision::Allow {
            permitted.handed.over();
            return Err((verdict.tool_result_json.clone(), verdict.decision() != Decision::Reuse || verdict.is_error));
        }
        let repaired = verdict.permit.unwrap_or_default().arguments_json;
        if repaired.is_empty() {
            return Ok(permitted);
        }
        let unused = v1::RecordRequest { not_started: true, ..permitted.cancellation.clone() };
        self.settle(asked, permitted, &unused).await;
        // The body cannot be changed.
        Err(unjudged(&format!("the policy wants other arguments. Call it again with exactly these: {repaired}")))
    }

    /// Records a call that was permitted, before the answer. A call whose outcome cannot be stored is unknown at the
    /// end of its lease.
    async fn settle(&self, asked: &McpRequest<'_>, call: PermittedCall, outcome: &v1::RecordRequest) {
        let PermittedCall { cancellation, handed } = call;
        let report = v1::RecordRequest { status: outcome.status, not_started: outcome.not_started, ..cancellation };
        if let Err(status) = self.calls.record_message(asked.identity, report, asked.metadata, None).await {
            tracing::warn!(reason = status.message(), "a call that Envoy may forward has an open lease");
        }
        handed.over();
    }
}

/// Content type of an answer.
const JSON: &str = "application/json";
/// About the other messages of a refused body.
const NOT_ALONE: &str = "another call in the same batch was refused, and a batch runs whole or not at all. Send it \
                         again without that call";

fn unjudged(why: &str) -> Refusal {
    let text = format!("callgate did not let this call run: {why}. It was not executed.");
    (answer::render_unjudged("not_judged", &text, false), true)
}

fn refuse_status(status: &Status) -> Refusal {
    if !is_away(status) {
        return unjudged(status.message());
    }
    let text =
        "callgate is unavailable, so this call was not judged and not executed. Try it again later, or tell the user.";
    (answer::render_unjudged("callgate_unavailable", text, true), true)
}

fn read_headers(http: &HttpRequest) -> HeaderMap {
    let header = |(name, value): (&String, &String)| {
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    http.headers.iter().filter_map(header).collect()
}

/// The whole body; none for a request that cannot have one. Refuses a body that the MCP server could read otherwise.
fn read_body<'a>(http: &'a HttpRequest, headers: &HeaderMap) -> Result<Option<&'a str>, (StatusCode, String)> {
    let refuse = |code, why: &str| Err((code, why.to_owned()));
    match http.method.as_str() {
        "POST" => {}
        "GET" | "HEAD" | "DELETE" | "OPTIONS" if http.raw_body.is_empty() && http.body.is_empty() => return Ok(None),
        "GET" | "HEAD" | "DELETE" | "OPTIONS" => return refuse(StatusCode::BAD_REQUEST, "only a POST may have a body"),
        _ => return refuse(StatusCode::METHOD_NOT_ALLOWED, "MCP has no such method"),
    }
    let length = http.raw_body.len();
    let is_short = usize::try_from(http.size).is_ok_and(|size| size > length);
    match http.headers.get(PARTIAL).map(String::as_str) {
        _ if !http.body.is_empty() => {
            refuse(StatusCode::FORBIDDEN, "Envoy sends the body as text: set with_request_body.pack_as_bytes")
        }
        _ if length == 0 => {
            refuse(StatusCode::FORBIDDEN, "the request has no body, or Envoy sends none: set with_request_body")
        }
        Some("true") => too_large(length),
        _ if is_short => too_large(length),
        _ if !is_plain(headers) => {
            refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is unreadable: send JSON in UTF-8, uncompressed")
        }
        _ => match std::str::from_utf8(&http.raw_body) {
            Ok(body) => Ok(Some(body)),
            Err(_) => refuse(StatusCode::BAD_REQUEST, "the body is not UTF-8"),
        },
    }
}

fn too_large<T>(length: usize) -> Result<T, (StatusCode, String)> {
    let why =
        format!("the body is longer than the {length} bytes that Envoy sends (with_request_body.max_request_bytes)");
    Err((StatusCode::PAYLOAD_TOO_LARGE, why))
}

fn forward() -> CheckResponse {
    CheckResponse { status: Some(tonic_types::Status::default()), http_response: None }
}

fn deny(code: StatusCode, kind: &str, body: String) -> CheckResponse {
    let header = |key: &str, value: &str| HeaderValueOption {
        header: Some(EnvoyHeaderValue { key: key.to_owned(), value: value.to_owned() }),
    };
    let denied = DeniedHttpResponse {
        status: Some(HttpStatus { code: i32::from(code.as_u16()) }),
        headers: vec![header("content-type", kind), header("cache-control", "no-store")],
        body,
    };
    let status = tonic_types::Status { code: Code::PermissionDenied.into(), ..tonic_types::Status::default() };
    CheckResponse { status: Some(status), http_response: Some(HttpResponse::DeniedResponse(denied)) }
}
