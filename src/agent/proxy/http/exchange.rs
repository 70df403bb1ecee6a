//! One HTTP exchange: judges the calls of a request, forwards the rest, and merges replacement responses.

use std::{pin::pin, sync::Arc, time::Duration};

use http::{Method, StatusCode, request::Parts};
use hyper::body::Bytes;
use tokio::{sync::mpsc, time::sleep};

use super::{
    Site, admission, is_sessionless,
    reply::{EVENTS, JSON, ResponseSender, head},
    upstream::UpstreamFailure,
};
use crate::{
    mcp::message::{self, LineKind, Message},
    proxy::{
        judge::{JudgedMessages, MessageBatch, ProxyClient},
        lines::{OutputItem, WAITING_MAX},
        state::{OpenRequest, Proxy, RequestKey},
    },
};

/// Time for a client to resume a broken stream, after which open calls have an unknown outcome.
const RESUMED: Duration = Duration::from_secs(5 * 60);

/// A request with its client.
pub(super) struct Exchange {
    pub(super) site: Arc<Site>,
    pub(super) proxy: Arc<Proxy>,
    pub(super) client: u64,
    pub(super) request: Parts,
    /// The proxy's origin, as its client names it.
    pub(super) own: String,
    /// Its request ids.
    keys: Vec<RequestKey>,
    /// True for a single message, false for a list.
    is_one: bool,
    /// True if its client can resume the stream on another connection.
    pub(super) is_resumable: bool,
}

impl Exchange {
    pub(super) fn new(site: Arc<Site>, proxy: Arc<Proxy>, client: u64, request: Parts, own: String) -> Self {
        Self { site, proxy, client, request, own, keys: Vec::new(), is_one: true, is_resumable: false }
    }

    /// Runs the exchange.
    pub(super) async fn run(mut self, body: Bytes, mut reply: ResponseSender) {
        if body.is_empty() {
            return self.forward(body, Vec::new(), reply).await;
        }
        let (told, progress) = mpsc::channel(WAITING_MAX);
        let told = Some(told).filter(|_| admission::takes(&self.request.headers, EVENTS));
        let client = ProxyClient { number: self.client, told };
        let Some(batch) = self.read(&body, &client) else {
            let answer = self.proxy.unreadable("it is not a message in UTF-8, or has a duplicate name");
            return reply.whole(head(StatusCode::BAD_REQUEST, JSON), Bytes::from(answer));
        };
        let Some(decided) = self.decide(batch, progress, &mut reply).await else { return };
        match decided.line {
            Some(line) => self.forward(Bytes::from(line), decided.answers, reply).await,
            None => self.answer(&decided.answers, reply).await,
        }
    }

    fn read(&mut self, body: &Bytes, client: &ProxyClient) -> Option<MessageBatch> {
        let messages = match message::read(std::str::from_utf8(body).ok()?) {
            LineKind::One(message) => vec![message],
            LineKind::Batch(messages) => {
                self.is_one = false;
                messages
            }
            // A server may read more than this does.
            LineKind::Noise | LineKind::Unreadable => return None,
        };
        let key = |message: &Message<'_>| {
            let id = message.id.clone().filter(|_| message.method.is_some())?;
            Some(RequestKey { client: self.client, id })
        };
        self.keys = messages.iter().filter_map(key).collect();
        Some(self.proxy.batch(client, &messages, body.to_vec(), self.is_one))
    }

    /// The verdict on its messages; none if its client disconnected.
    async fn decide(
        &self,
        batch: MessageBatch,
        mut progress: mpsc::Receiver<OutputItem>,
        reply: &mut ResponseSender,
    ) -> Option<JudgedMessages> {
        let mut deciding = pin!(self.proxy.decide_batch(batch));
        let mut is_gone = false;
        loop {
            tokio::select! {
                biased;
                () = reply.wait_for_disconnect(), if !is_gone => {
                    is_gone = true;
                    self.call_off();
                }
                decided = &mut deciding => return Some(decided).filter(|_| !is_gone),
                Some(OutputItem::Line(line)) = progress.recv() => reply.event(&String::from_utf8_lossy(&line)).await,
            }
        }
    }

    /// Cancels held calls, which the server never receives.
    fn call_off(&self) {
        for key in &self.keys {
            self.proxy.call_off(key);
        }
    }

    /// Responds in place of the server.
    async fn answer(&self, answers: &[String], mut reply: ResponseSender) {
        if answers.is_empty() && !reply.is_open() {
            return reply.whole(head(StatusCode::ACCEPTED, JSON), Bytes::new());
        }
        if !reply.is_open() && admission::takes(&self.request.headers, JSON) {
            let joined = match answers {
                [answer] if self.is_one => answer.clone(),
                answers => format!("[{}]", answers.join(",")),
            };
            return reply.whole(head(StatusCode::OK, JSON), Bytes::from(joined));
        }
        for answer in answers {
            reply.event(answer).await;
        }
    }

    /// Forwards the permitted messages, and returns the response with the replacements.
    async fn forward(self, body: Bytes, answers: Vec<String>, mut reply: ResponseSender) {
        let sent = tokio::select! {
            biased;
            () = reply.wait_for_disconnect() => return self.client_disconnected(),
            sent = self.site.upstream.send(&self.request, body) => sent,
        };
        match sent {
            Ok(response) => {
                if self.request.method == Method::DELETE && response.status().is_success() {
                    self.site.sessions.end(&self.request.headers);
                }
                self.pass(response, answers, reply).await;
            }
            Err(UpstreamFailure { why, is_unsent }) => {
                let why = format!("The MCP server at {} does not answer: {why}.", self.site.upstream.as_public_url());
                self.fail(&why, is_unsent, answers, reply).await;
            }
        }
    }

    /// Handles a missing response: open calls are unknown, unless the server never received them.
    pub(super) async fn fail(&self, why: &str, is_unseen: bool, mut answers: Vec<String>, reply: ResponseSender) {
        for open in self.take_open() {
            answers.push(if is_unseen { self.proxy.unseen(open, why) } else { self.proxy.lose_request(open, why) });
        }
        if answers.is_empty() {
            let text = format!("callgate mcp-proxy: {why}\n");
            let kind = "text/plain; charset=utf-8";
            return reply.whole(head(StatusCode::BAD_GATEWAY, kind), Bytes::from(text));
        }
        // Clients read no message out of an answer that is none of 200.
        self.answer(&answers, reply).await;
    }

    /// Takes its requests without a response.
    pub(super) fn take_open(&self) -> Vec<OpenRequest> {
        let mut state = self.proxy.state();
        self.keys.iter().filter_map(|key| Some(OpenRequest { key: key.clone(), kind: state.take(key)? })).collect()
    }

    /// True while a request has no response.
    pub(super) fn is_open(&self) -> bool {
        let state = self.proxy.state();
        self.keys.iter().any(|key| state.is_open(key))
    }

    /// Handles a disconnected client: its requests are cancelled by that, or continue.
    pub(super) fn client_disconnected(self) {
        if is_sessionless(&self.request.headers) {
            return self.call_off();
        }
        self.finish_response(None);
    }

    /// Handles the end of a response with the server's `status`. Open requests failed with that status, may resume on
    /// another connection, or are unknown. Returns responses for a connected client.
    pub(super) fn finish_response(self, status: Option<StatusCode>) -> Vec<String> {
        if let Some(status) = status.filter(|status| !status.is_success()) {
            return self.take_open().into_iter().map(|open| self.proxy.fail_request(open, status.as_u16())).collect();
        }
        // A server that accepts a message may answer it on the stream of its session.
        let is_elsewhere = self.client == 0 && (self.is_resumable || status == Some(StatusCode::ACCEPTED));
        if is_elsewhere && self.is_open() {
            tokio::spawn(async move {
                sleep(RESUMED).await;
                self.take_open().into_iter().for_each(|open| drop(self.proxy.lose_request(open, "")));
            });
            return Vec::new();
        }
        let why = "The MCP server ended its answer without a result.";
        self.take_open().into_iter().map(|open| self.proxy.lose_request(open, why)).collect()
    }

    /// True for the endless stream of unsolicited server messages.
    pub(super) fn is_listening(&self) -> bool {
        self.request.method == Method::GET
    }
}
