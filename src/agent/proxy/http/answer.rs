//! Response path of HTTP: passes an event stream, one message, or any other body.

use http::{HeaderValue, Response, StatusCode, header, response::Parts};
use hyper::body::{Bytes, Incoming};

use super::{
    Site, admission,
    decoded::DecodedBody,
    exchange::Exchange,
    oauth,
    reply::{EVENTS, JSON, ResponseSender},
};
use crate::{
    mcp::events::{self, Events, StreamPiece},
    proxy::lines::LINE_BYTES_MAX,
};

/// Next input of a stream.
enum NextStep {
    Data(Bytes),
    End,
    /// Broken off by the server.
    Broken(String),
    /// The client disconnected.
    Left,
}

impl Exchange {
    /// Passes the server's response, after the replacement responses.
    pub(super) async fn pass(self, response: Response<Incoming>, answers: Vec<String>, reply: ResponseSender) {
        let (mut head, body) = response.into_parts();
        if head.status.is_redirection() && head.headers.contains_key(header::LOCATION) {
            // A client that follows a redirect asks the server itself.
            let to = head.headers.get(header::LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
            let why = format!("The MCP server redirects to {}: use that as --url.", to.unwrap_or_default());
            let is_unseen = head.status != StatusCode::FOUND && head.status != StatusCode::SEE_OTHER;
            return self.fail(&why, is_unseen, answers, reply).await;
        }
        head.headers = admission::without_hops(&head.headers);
        let (body, coding) = DecodedBody::new(&mut head.headers, body);
        let is_alone = answers.is_empty() && !reply.is_open();
        if oauth::is_challenge(&head) {
            oauth::show_own_metadata(&self.site, &self.own, &mut head.headers);
            // Its client authorizes itself and sends the call again, which then is none that failed.
            let why = "The MCP server requires authorization.";
            if !is_alone {
                return self.fail(why, true, answers, reply).await;
            }
            self.take_open().into_iter().for_each(|open| drop(self.proxy.unseen(open, why)));
            return self.stream(head, Vec::new(), body, reply).await;
        }
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.to_ascii_lowercase();
        let is_events = kind.starts_with(EVENTS) && head.status.is_success();
        let is_read = is_events || kind.starts_with(JSON) && head.status.is_success() || !is_alone;
        if let Some(coding) = coding.err().filter(|_| is_read) {
            let server = self.site.upstream.as_public_url();
            let why =
                format!("The MCP server at {server} compressed its answer ({coding}), which callgate cannot read.");
            self.fail(&why, false, answers, reply).await;
        } else if is_events {
            self.events(head, body, answers, reply).await;
        } else if is_read || kind.starts_with(JSON) {
            self.message(head, body, answers, reply).await;
        } else {
            self.stream(head, Vec::new(), body, reply).await;
        }
    }

    async fn next(&self, body: &mut DecodedBody, reply: &mut ResponseSender) -> NextStep {
        let mut ending = self.site.ending.clone();
        tokio::select! {
            () = reply.wait_for_disconnect() => NextStep::Left,
            _ = ending.wait_for(|ending| *ending), if self.is_listening() => NextStep::End,
            part = body.next() => match part {
                None => NextStep::End,
                Some(Err(why)) => NextStep::Broken(why),
                Some(Ok(data)) => NextStep::Data(data),
            },
        }
    }

    async fn events(mut self, mut head: Parts, mut body: DecodedBody, answers: Vec<String>, mut reply: ResponseSender) {
        head.headers.remove(header::CONTENT_LENGTH);
        if !reply.is_open() {
            reply.open(head);
        }
        for answer in answers {
            reply.event(&answer).await;
        }
        let mut stream = Events::new(LINE_BYTES_MAX);
        let broken = loop {
            match self.next(&mut body, &mut reply).await {
                NextStep::Data(bytes) => {
                    stream.push(&bytes);
                    while let Some(piece) = stream.next_piece() {
                        reply.send_part(self.piece(piece)).await;
                    }
                }
                NextStep::End => break None,
                NextStep::Broken(why) => break Some(why),
                NextStep::Left => return self.client_disconnected(),
            }
        };
        if let Some(piece) = stream.take_rest() {
            reply.send_part(self.piece(piece)).await;
        }
        for answer in self.finish_response(None) {
            reply.event(&answer).await;
        }
        if let Some(why) = broken {
            reply.tear(why).await;
        }
    }

    /// A piece of the stream, with the server's hints added.
    fn piece(&mut self, piece: StreamPiece) -> Bytes {
        let bytes = match piece {
            StreamPiece::Event(bytes) => bytes,
            StreamPiece::Part(bytes) => return Bytes::from(bytes),
        };
        let event = String::from_utf8_lossy(&bytes);
        self.is_resumable |= events::id(&event).is_some();
        let noted = events::data(&event).and_then(|data| self.proxy.handle_server_message(self.client, &data));
        let noted = noted.map(|noted| events::with_data(&event, &noted));
        Bytes::from(noted.map_or(bytes, String::into_bytes))
    }

    /// A response parsed as a whole, up to the maximum size.
    async fn message(self, head: Parts, mut body: DecodedBody, answers: Vec<String>, mut reply: ResponseSender) {
        let (mut bytes, is_alone) = (Vec::new(), answers.is_empty() && !reply.is_open());
        let shown = |site: &Site| format!("The MCP server at {}", site.upstream.as_public_url());
        loop {
            match self.next(&mut body, &mut reply).await {
                NextStep::Data(data) => bytes.extend_from_slice(&data),
                NextStep::End => return self.finish(head, bytes, answers, reply).await,
                NextStep::Broken(error) => {
                    let why = format!("{} broke off its answer: {error}.", shown(&self.site));
                    return self.fail(&why, false, answers, reply).await;
                }
                NextStep::Left => return self.client_disconnected(),
            }
            if bytes.len() > LINE_BYTES_MAX {
                if is_alone {
                    return self.stream(head, bytes, body, reply).await;
                }
                let why = format!("{} returned more than {} MiB.", shown(&self.site), LINE_BYTES_MAX >> 20);
                return self.fail(&why, false, answers, reply).await;
            }
        }
    }

    async fn finish(self, mut head: Parts, bytes: Vec<u8>, mut answers: Vec<String>, mut reply: ResponseSender) {
        let (text, was_open) = (String::from_utf8_lossy(&bytes), self.is_open());
        let noted = self.proxy.handle_server_message(self.client, &text);
        let (status, is_answer) = (head.status, was_open && !self.is_open());
        if answers.is_empty() && !reply.is_open() {
            reply.whole(head, Bytes::from(noted.map_or(bytes, String::into_bytes)));
            self.finish_response(Some(status));
            return;
        }
        let text = noted.as_deref().unwrap_or(&text).trim().to_owned();
        let text = Some(text).filter(|text| !text.is_empty() && (is_answer || status.is_success()));
        if reply.is_open() {
            for answer in answers.into_iter().chain(text).chain(self.finish_response(Some(status))) {
                reply.event(&answer).await;
            }
            return;
        }
        // Joins both lists of responses.
        let list = |text: String| match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            Some(list) => list.to_owned(),
            None => text,
        };
        answers.extend(text.map(list).filter(|text| !text.trim().is_empty()));
        head.status = StatusCode::OK;
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        answers.extend(self.finish_response(Some(status)));
        reply.whole(head, Bytes::from(format!("[{}]", answers.join(","))));
    }

    /// Passes an unparsed body through.
    async fn stream(self, head: Parts, first: Vec<u8>, mut body: DecodedBody, mut reply: ResponseSender) {
        let status = head.status;
        reply.open(head);
        reply.send_part(Bytes::from(first)).await;
        loop {
            match self.next(&mut body, &mut reply).await {
                NextStep::Data(bytes) => reply.send_part(bytes).await,
                NextStep::End => break,
                NextStep::Broken(why) => {
                    self.finish_response(None);
                    return reply.tear(why).await;
                }
                NextStep::Left => return self.client_disconnected(),
            }
        }
        self.finish_response(Some(status));
    }
}
