//! One request, from its body to the last of its answer: what of it is judged, what goes on to the server, and what is
//! answered in the server's place.

use std::{pin::pin, sync::Arc, time::Duration};

use http::{Method, StatusCode, request::Parts};
use hyper::body::Bytes;
use tokio::{sync::mpsc, time::sleep};

use super::{
    Site, doors, is_sessionless,
    reply::{EVENTS, JSON, Reply, head},
    upstream::Unanswered,
};
use crate::{
    mcp::message::{self, Line, Message},
    proxy::{
        judge::{Batch, Client, Decided},
        lines::{Out, WAITING_MAX},
        state::{Key, Open, Proxy},
    },
};

/// How long a client has to take up a stream that broke off, before what it waited for is unknown.
const RESUMED: Duration = Duration::from_secs(5 * 60);

/// A request and who sent it.
pub(super) struct Exchange {
    pub(super) site: Arc<Site>,
    pub(super) proxy: Arc<Proxy>,
    pub(super) client: u64,
    pub(super) request: Parts,
    /// What it asks for.
    keys: Vec<Key>,
    /// It came as one message, and not as a list.
    is_one: bool,
    /// Its client can ask for the rest of the stream on another connection.
    pub(super) is_resumable: bool,
}

impl Exchange {
    pub(super) fn new(site: Arc<Site>, proxy: Arc<Proxy>, client: u64, request: Parts) -> Self {
        Self { site, proxy, client, request, keys: Vec::new(), is_one: true, is_resumable: false }
    }

    /// Does all of it.
    pub(super) async fn run(mut self, body: Bytes, mut reply: Reply) {
        if body.is_empty() {
            return self.forward(body, Vec::new(), reply).await;
        }
        let (told, progress) = mpsc::channel(WAITING_MAX);
        let told = Some(told).filter(|_| doors::takes(&self.request.headers, EVENTS));
        let client = Client { number: self.client, told };
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

    fn read(&mut self, body: &Bytes, client: &Client) -> Option<Batch> {
        let messages = match message::read(std::str::from_utf8(body).ok()?) {
            Line::One(message) => vec![message],
            Line::Batch(messages) => {
                self.is_one = false;
                messages
            }
            // A server may read more than this does.
            Line::Noise | Line::Unreadable => return None,
        };
        let key = |message: &Message<'_>| {
            let id = message.id.clone().filter(|_| message.method.is_some())?;
            Some(Key { client: self.client, id })
        };
        self.keys = messages.iter().filter_map(key).collect();
        Some(self.proxy.batch(client, &messages, body.to_vec(), self.is_one))
    }

    /// The verdict on what is in it; none where its client went away before.
    async fn decide(&self, batch: Batch, mut progress: mpsc::Receiver<Out>, reply: &mut Reply) -> Option<Decided> {
        let mut deciding = pin!(self.proxy.decide_batch(batch));
        let mut is_gone = false;
        loop {
            tokio::select! {
                biased;
                () = reply.gone(), if !is_gone => {
                    is_gone = true;
                    self.call_off();
                }
                decided = &mut deciding => return Some(decided).filter(|_| !is_gone),
                Some(Out::Line(line)) = progress.recv() => reply.event(&String::from_utf8_lossy(&line)).await,
            }
        }
    }

    /// What the server has not seen it will not see.
    fn call_off(&self) {
        for key in &self.keys {
            self.proxy.call_off(key);
        }
    }

    /// Answers in the server's place.
    async fn answer(&self, answers: &[String], mut reply: Reply) {
        if answers.is_empty() && !reply.is_open() {
            return reply.whole(head(StatusCode::ACCEPTED, JSON), Bytes::new());
        }
        if !reply.is_open() && doors::takes(&self.request.headers, JSON) {
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

    /// Sends what may run to the server, and its answer back with those that were given in its place.
    async fn forward(self, body: Bytes, answers: Vec<String>, mut reply: Reply) {
        let sent = tokio::select! {
            biased;
            () = reply.gone() => return self.left(),
            sent = self.site.upstream.send(&self.request, body) => sent,
        };
        match sent {
            Ok(response) => {
                if self.request.method == Method::DELETE && response.status().is_success() {
                    self.site.sessions.end(&self.request.headers);
                }
                self.pass(response, answers, reply).await;
            }
            Err(Unanswered { why, is_unsent }) => {
                let why = format!("The MCP server at {} does not answer: {why}.", self.site.upstream.shown());
                self.fail(&why, is_unsent, answers, reply).await;
            }
        }
    }

    /// The server does not answer: what is open is unknown, unless it has not seen it.
    pub(super) async fn fail(&self, why: &str, is_unseen: bool, mut answers: Vec<String>, reply: Reply) {
        for open in self.take_open() {
            answers.push(if is_unseen { self.proxy.unseen(open, why) } else { self.proxy.lost(open, why) });
        }
        if answers.is_empty() {
            let text = format!("callgate mcp-proxy: {why}\n");
            let kind = "text/plain; charset=utf-8";
            return reply.whole(head(StatusCode::BAD_GATEWAY, kind), Bytes::from(text));
        }
        // Clients read no message out of an answer that is none of 200.
        self.answer(&answers, reply).await;
    }

    /// What it asked for, and the server has not answered.
    fn take_open(&self) -> Vec<Open> {
        let mut state = self.proxy.state();
        self.keys.iter().filter_map(|key| Some(Open { key: key.clone(), kind: state.take(key)? })).collect()
    }

    /// True while the server has not answered all of it.
    pub(super) fn is_open(&self) -> bool {
        let state = self.proxy.state();
        self.keys.iter().any(|key| state.is_open(key))
    }

    /// The client has gone. What it asked for is called off by that, or goes on without it.
    pub(super) fn left(self) {
        if is_sessionless(&self.request.headers) {
            return self.call_off();
        }
        self.unanswered(None);
    }

    /// The answer is over; `status` is the server's. What it did not answer is an error by that status, or may come on
    /// another connection, or is unknown. Gives what to tell a client that reads on.
    pub(super) fn unanswered(self, status: Option<StatusCode>) -> Vec<String> {
        if let Some(status) = status.filter(|status| !status.is_success()) {
            return self.take_open().into_iter().map(|open| self.proxy.failed(open, status.as_u16())).collect();
        }
        // A server that accepts a message may answer it on the stream of its session.
        let is_elsewhere = self.client == 0 && (self.is_resumable || status == Some(StatusCode::ACCEPTED));
        if is_elsewhere && self.is_open() {
            tokio::spawn(async move {
                sleep(RESUMED).await;
                self.take_open().into_iter().for_each(|open| drop(self.proxy.lost(open, "")));
            });
            return Vec::new();
        }
        let why = "The MCP server ended its answer without a result.";
        self.take_open().into_iter().map(|open| self.proxy.lost(open, why)).collect()
    }

    /// True for the stream on which a server says what nobody asked for: it has no end of its own.
    pub(super) fn is_listening(&self) -> bool {
        self.request.method == Method::GET
    }
}
