//! A host's pipes before a server over HTTP: each line is a POST, and each message of an answer a line.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    io::{stdin, stdout},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{
    Site,
    exchange::Exchange,
    reply::{Body, EVENTS, JSON, ResponseSender},
};
use crate::{
    mcp::{
        answer,
        events::{self, Events, StreamPiece},
        message::{self, Id, LineKind, Message},
    },
    proxy::{
        LAST_WORDS,
        lines::{self, InputItem, LINE_BYTES_MAX, OutputItem, PipeReader, WAITING_MAX},
    },
};
use callgate_client::signal;

/// Prefix of variables with a header of every request, which other users of the machine do not see.
pub(super) const HEADER: &str = "CALLGATE_HEADER_";
/// Pause before a stream is opened again.
const AGAIN: Duration = Duration::from_secs(1);
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The client at the pipes.
struct Pipe {
    site: Arc<Site>,
    /// Headers of every request: of the settings, of the session.
    headers: Mutex<HeaderMap>,
    to_client: mpsc::Sender<OutputItem>,
    /// Requests in execution.
    running: Mutex<Vec<(Id, AbortHandle)>>,
}

/// Facts about a line.
struct HostLine {
    id: Option<Id>,
    method: Option<String>,
    cancels: Option<Id>,
    headers: HeaderMap,
}

/// Passes lines on until the input ends, or a signal.
pub(super) async fn run(site: Arc<Site>) -> anyhow::Result<()> {
    let (to_client, written) = mpsc::channel(WAITING_MAX);
    let mut writer = tokio::spawn(lines::write(stdout(), written));
    let pipe = Arc::new(Pipe { site, headers: Mutex::new(read_headers()?), to_client, running: Mutex::default() });
    let (mut input, mut requests) = (PipeReader::new(stdin(), LINE_BYTES_MAX), JoinSet::new());
    let mut listening = None;
    loop {
        let next = tokio::select! {
            next = input.next() => next?,
            () = signal::stop() => None,
            _ = &mut writer => None,
        };
        match next {
            None => break,
            Some(InputItem::Line(line)) => {
                if pipe.take(line, &mut requests).await {
                    let pipe = Arc::clone(&pipe);
                    listening = Some(tokio::spawn(async move { pipe.listen().await }));
                }
            }
            Some(InputItem::Part { is_last, .. }) => {
                let text = "callgate refuses this message, which is longer than 16 MiB";
                if is_last {
                    pipe.say(&answer::unreadable(text)).await;
                }
            }
        }
        while requests.try_join_next().is_some() {}
    }
    // Answers may come for as long as a server's output would after the end of its input.
    let _ = timeout(LAST_WORDS, async { while requests.join_next().await.is_some() {} }).await;
    requests.shutdown().await;
    listening.inspect(|listening| listening.abort());
    if pipe.headers.lock().contains_key(SESSION) {
        let ended = pipe.send(pipe.request(Method::DELETE, &HeaderMap::new()), Bytes::new());
        let _ = timeout(LAST_WORDS, ended).await;
    }
    Ok(())
}

/// The headers in the environment.
fn read_headers() -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in std::env::vars() {
        let Some(header) = name.strip_prefix(HEADER) else { continue };
        let mut value = HeaderValue::try_from(value).with_context(|| format!("{name} is no value of a header"))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(header).with_context(|| format!("{name} names no header"))?, value);
    }
    Ok(headers)
}

impl HostLine {
    fn read(text: &str) -> Self {
        match message::read(text) {
            LineKind::One(message) => Self {
                id: message.id.clone().filter(|_| message.method.is_some()),
                cancels: message.cancels(),
                headers: describe_request(&message),
                method: message.method,
            },
            _ => Self { id: None, method: None, cancels: None, headers: HeaderMap::new() },
        }
    }

    fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

/// Headers that repeat a request from 2026-07-28 on, whose version is in its parameters.
fn describe_request(message: &Message<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let params: Value = message.member("params").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let version = params.pointer("/_meta/io.modelcontextprotocol~1protocolVersion").and_then(Value::as_str);
    let named = ["name", "uri"].iter().find_map(|name| params.get(name)?.as_str());
    let described = [("mcp-protocol-version", version), ("mcp-method", message.method.as_deref()), ("mcp-name", named)];
    for (name, value) in described.into_iter().filter(|_| version.is_some()) {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers
}

impl Pipe {
    /// Sends a line on; true when the server's own messages can be listened to.
    async fn take(self: &Arc<Self>, line: Vec<u8>, requests: &mut JoinSet<()>) -> bool {
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            return false;
        }
        let read = HostLine::read(&text);
        if let Some(id) = &read.cancels {
            let aborted = self.running.lock().iter().find(|(running, _)| running == id).map(|(_, task)| task.clone());
            // Without a session the end of its stream cancels a request.
            if let Some(task) = aborted.filter(|_| !self.headers.lock().contains_key(SESSION)) {
                task.abort();
                return false;
            }
        }
        let is_first = read.is("initialize") || read.is("notifications/initialized");
        let is_ready = read.is("notifications/initialized");
        let (pipe, id) = (Arc::clone(self), read.id.clone());
        let sent = async move { pipe.exchange(&read, Bytes::from(line)).await };
        if is_first {
            // What comes next needs its session.
            sent.await;
            return is_ready;
        }
        let task = requests.spawn(sent);
        let mut running = self.running.lock();
        running.retain(|(_, task)| !task.is_finished());
        running.extend(id.map(|id| (id, task)));
        false
    }

    /// A request with the headers of the session.
    fn request(&self, method: Method, more: &HeaderMap) -> Parts {
        let (mut request, ()) = Request::new(()).into_parts();
        request.headers = self.headers.lock().clone();
        let accepted = if method == Method::POST { "application/json, text/event-stream" } else { EVENTS };
        request.headers.insert(header::ACCEPT, HeaderValue::from_static(accepted));
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        more.iter().for_each(|(name, value)| drop(request.headers.insert(name.clone(), value.clone())));
        request.method = method;
        request
    }

    async fn send(&self, request: Parts, body: Bytes) -> anyhow::Result<Response<Body>> {
        let (proxy, client) = self.site.sessions.of(&request.headers)?;
        let (reply, answer) = ResponseSender::new();
        let exchange = Exchange::new(Arc::clone(&self.site), proxy, client, request, String::new());
        tokio::spawn(exchange.run(body, reply));
        Ok(answer.await?)
    }

    /// Sends a message and passes on what comes of it; a request always gets an answer.
    async fn exchange(&self, line: &HostLine, body: Bytes) {
        let why = match self.send(self.request(Method::POST, &line.headers), body).await {
            Ok(response) => {
                if line.is("initialize")
                    && let Some(session) = response.headers().get(SESSION)
                {
                    self.headers.lock().insert(SESSION, session.clone());
                }
                let status = response.status();
                let mut last = self.deliver(response, line.id.as_ref()).await;
                // A server may end a stream and continue it on another one.
                while let Delivered::Open(Some(event)) = &last {
                    sleep(AGAIN).await;
                    last = self.resume(event, line.id.as_ref()).await;
                }
                match (last, status) {
                    (Delivered::Whole, _) => return,
                    (_, StatusCode::UNAUTHORIZED) => "The MCP server asks for authorization (HTTP 401). The user \
                        gives its host a credential for it, or undoes `callgate mcp wrap` and signs in there."
                        .to_owned(),
                    (_, status) => format!("The MCP server answered with the HTTP status {}.", status.as_u16()),
                }
            }
            Err(error) => format!("callgate mcp-proxy: {error:#}"),
        };
        if let Some(id) = &line.id {
            self.say(&answer::render_server_lost(id, &why)).await;
        }
    }

    async fn resume(&self, event: &str, id: Option<&Id>) -> Delivered {
        let last = HeaderValue::from_str(event).map(|event| HeaderMap::from_iter([(LAST_EVENT, event)]));
        let Ok(last) = last else { return Delivered::Open(None) };
        match self.send(self.request(Method::GET, &last), Bytes::new()).await {
            Ok(response) if response.status().is_success() => self.deliver(response, id).await,
            _ => Delivered::Open(None),
        }
    }

    /// Passes on the server's own messages, for as long as it offers a stream of them.
    async fn listen(&self) {
        let mut last = HeaderMap::new();
        while let Ok(response) = self.send(self.request(Method::GET, &last), Bytes::new()).await {
            if !response.status().is_success() {
                return;
            }
            if let Delivered::Open(Some(event)) = self.deliver(response, None).await
                && let Ok(event) = HeaderValue::from_str(&event)
            {
                last.insert(LAST_EVENT, event);
            }
            sleep(AGAIN).await;
        }
    }

    /// Passes on the messages of a response, to the request of `id`.
    async fn deliver(&self, response: Response<Body>, id: Option<&Id>) -> Delivered {
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_events = kind.starts_with(EVENTS);
        let (status, mut body) = (response.status(), response.into_body());
        if !is_events {
            let Some(bytes) = read_whole(body).await else { return Delivered::Open(None) };
            let text = String::from_utf8_lossy(&bytes);
            let is_done = match message::read(&text) {
                LineKind::One(message) => self.pass(&text, message.answers(), id).await,
                LineKind::Batch(messages) => {
                    let answered =
                        messages.iter().find_map(|message| message.answers().filter(|known| Some(*known) == id));
                    self.pass(&text, answered, id).await
                }
                LineKind::Noise | LineKind::Unreadable => false,
            };
            return if is_done || id.is_none() && status.is_success() {
                Delivered::Whole
            } else {
                Delivered::Open(None)
            };
        }
        let (mut stream, mut is_done, mut last) = (Events::new(LINE_BYTES_MAX), false, None);
        loop {
            let frame = body.frame().await;
            let is_end = !matches!(frame, Some(Ok(_)));
            if let Some(Ok(frame)) = frame
                && let Ok(data) = frame.into_data()
            {
                stream.push(&data);
            }
            let mut pieces = Vec::new();
            pieces.extend(std::iter::from_fn(|| stream.next_piece()));
            if is_end {
                pieces.extend(std::mem::replace(&mut stream, Events::new(0)).take_rest());
            }
            for piece in pieces {
                let StreamPiece::Event(bytes) = piece else { continue };
                let event = String::from_utf8_lossy(&bytes);
                last = events::id(&event).or(last);
                let Some(data) = events::data(&event) else { continue };
                if let LineKind::One(message) = message::read(&data) {
                    is_done |= self.pass(&data, message.answers(), id).await;
                }
            }
            if is_end {
                return if is_done { Delivered::Whole } else { Delivered::Open(last) };
            }
        }
    }

    /// Writes a message as a line; true if it answers the request of `id`.
    async fn pass(&self, text: &str, answers: Option<&Id>, id: Option<&Id>) -> bool {
        let version = || {
            serde_json::from_str::<Value>(text).ok()?.pointer("/result/protocolVersion")?.as_str().map(str::to_owned)
        };
        let is_it = answers.is_some() && answers == id;
        if is_it
            && !self.headers.lock().contains_key(VERSION)
            && let Some(version) = version().and_then(|version| HeaderValue::try_from(version).ok())
        {
            self.headers.lock().insert(VERSION, version);
        }
        self.say(&text.trim().replace(['\r', '\n'], " ")).await;
        is_it
    }

    async fn say(&self, message: &str) {
        let _ = self.to_client.send(OutputItem::from_message(message)).await;
    }
}

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A body of at most the length of a line.
async fn read_whole(mut body: Body) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(&frame.ok()?.into_data().unwrap_or_default());
        if bytes.len() > LINE_BYTES_MAX {
            return None;
        }
    }
    Some(bytes)
}

/// State of a request after a response.
enum Delivered {
    /// It has its answer.
    Whole,
    /// It has none; the last event from which its stream may continue.
    Open(Option<String>),
}
