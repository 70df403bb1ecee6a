//! Connect: the requests of many sessions on one stream. One task per stream reads frames, executes all requests in
//! flight, and sends their answers. At the limit of requests in flight, HTTP/2 flow control holds the client back.
//!
//! Another task writes the answers to the socket. It blocks while the client reads nothing; a request executed in it
//! would then keep its database connection from other clients.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::{HeaderMap, HeaderValue};
use prost::Message as _;
use tokio::{
    sync::mpsc::{self, Sender},
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{
    decode::DecodeResult,
    limits::{MESSAGE_BYTES_MAX, STREAM_BYTES_MAX, STREAM_REQUESTS_MAX},
    malformed::MalformedField,
    service::GateService,
    shutdown::Stop,
    status,
    time::span,
};
use callgate_core::domain::identity::Identity;
use callgate_proto::v1::{self, tagged_answer::Answer, tagged_request::Request};

/// The stream of responses.
pub(super) type Frames = ReceiverStream<Result<v1::ConnectResponse, Status>>;

/// Maximum timeout of a request in milliseconds: a day. The server's own limit is shorter.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Requests that a stream's task begins or ends before it yields, so that a client with a thousand in flight delays
/// others by some milliseconds only.
const AT_ONCE: usize = 64;

/// Serves a stream until its client closes it or is lost, or the server ends.
pub(super) fn connect(
    service: GateService,
    identity: Arc<Identity>,
    requests: Streaming<v1::ConnectRequest>,
    stop: Stop,
) -> Frames {
    // One: while the transport still has a frame to send, answers gather for the next one.
    let (to, answers) = mpsc::channel(1);
    tokio::spawn(async move {
        // Requests that were read are answered before the server ends.
        let _owed = stop.owe();
        let limits = v1::StreamLimits { requests: STREAM_REQUESTS_MAX as u32, bytes: STREAM_BYTES_MAX as u64 };
        let first = v1::ConnectResponse { limits: Some(limits), ..Default::default() };
        tokio::select! {
            sent = to.send(Ok(first)) => if sent.is_err() { return },
            () = to.closed() => return,
        }
        if let Err(end) = Box::pin(exchange(&service, &identity, requests, &to, &stop)).await {
            let _ = to.send(Err(end)).await;
        }
    });
    ReceiverStream::new(answers)
}

/// Size of a request in flight, in bytes, which counts until its answer is sent.
type InFlightBytes = usize;

/// Finished answers, and the requests in flight.
#[derive(Default)]
struct Ready {
    answers: VecDeque<(InFlightBytes, v1::TaggedAnswer)>,
    held: InFlightBytes,
}

impl Ready {
    fn push(&mut self, place: InFlightBytes, answer: v1::TaggedAnswer) {
        self.answers.push_back((place, answer));
    }

    /// Takes as many answers as one frame holds, with the size of their requests.
    fn frame(&mut self) -> (v1::ConnectResponse, InFlightBytes) {
        let (mut answers, mut bytes, mut left) = (Vec::with_capacity(self.answers.len()), 0, 0);
        while let Some((place, answer)) = self.answers.pop_front() {
            // The tag and the length of each beside it.
            bytes += answer.encoded_len() + 8;
            if bytes > MESSAGE_BYTES_MAX && !answers.is_empty() {
                self.answers.push_front((place, answer));
                break;
            }
            left += place;
            answers.push(within_a_message(answer));
        }
        (v1::ConnectResponse { answers, limits: None }, left)
    }
}

/// The answer, or an error for one beyond the size that the transport allows a unary call.
fn within_a_message(answer: v1::TaggedAnswer) -> v1::TaggedAnswer {
    let bytes = answer.encoded_len() + 8;
    if bytes <= MESSAGE_BYTES_MAX {
        return answer;
    }
    encode_refusal(
        answer.tag,
        &Status::out_of_range(format!("the answer has {bytes} bytes; at most {MESSAGE_BYTES_MAX} are sent")),
    )
}

/// Reads, executes and sends until the client closes the stream; returns the cause of any other end.
async fn exchange(
    service: &GateService,
    identity: &Arc<Identity>,
    mut requests: Streaming<v1::ConnectRequest>,
    to: &Sender<Result<v1::ConnectResponse, Status>>,
    stop: &Stop,
) -> Result<(), Status> {
    let (mut in_flight, mut ready) = (FuturesUnordered::new(), Ready::default());
    let mut unread: VecDeque<v1::TaggedRequest> = VecDeque::new();
    // Begun and done since others were let run.
    let mut worked = 0;
    // Some once nothing more is read, with how the stream ends.
    let mut end: Option<Result<(), Status>> = None;
    let (gone, ending) = (to.closed(), stop.wait_for_stop());
    tokio::pin!(gone, ending);
    loop {
        let has_place = |requests: usize, held| requests < STREAM_REQUESTS_MAX && held < STREAM_BYTES_MAX;
        while worked < AT_ONCE
            && has_place(in_flight.len() + ready.answers.len(), ready.held)
            && let Some(request) = unread.pop_front()
        {
            worked += 1;
            let place = request.encoded_len();
            ready.held += place;
            in_flight.push(answer_tagged(service.clone(), Arc::clone(identity), request, place));
        }
        if worked >= AT_ONCE {
            worked = 0;
            tokio::task::yield_now().await;
        }
        if let Some(end) = &end
            && in_flight.is_empty()
            && ready.answers.is_empty()
        {
            return end.clone();
        }
        let has_room = has_place(in_flight.len() + ready.answers.len(), ready.held);
        let reads = end.is_none() && unread.is_empty() && has_room;
        tokio::select! {
            biased;
            () = &mut gone => return Ok(()),
            () = &mut ending, if end.is_none() => {
                end = Some(Err(status::shutting_down()));
                for request in unread.drain(..) {
                    ready.push(0, encode_refusal(request.tag, &status::shutting_down()));
                }
            }
            Some((place, answer)) = in_flight.next() => {
                ready.push(place, answer);
                worked += 1;
            }
            Ok(room) = to.reserve(), if !ready.answers.is_empty() => {
                let (frame, left) = ready.frame();
                ready.held -= left;
                room.send(Ok(frame));
            }
            frame = requests.message(), if reads => match frame {
                Ok(Some(frame)) => unread.extend(frame.requests),
                Ok(None) => end = Some(Ok(())),
                Err(status) => end = Some(Err(status)),
            },
            // More was read than is begun in a row: the rest needs no wait.
            () = std::future::ready(()), if has_room && !unread.is_empty() => {}
        }
    }
}

/// The answer to a request, within its timeout.
async fn answer_tagged(
    service: GateService,
    identity: Arc<Identity>,
    request: v1::TaggedRequest,
    place: InFlightBytes,
) -> (InFlightBytes, v1::TaggedAnswer) {
    let tag = request.tag;
    let answer = match limit(&request) {
        Ok(None) => call_method(&service, &identity, request, None).await,
        Ok(Some(limit)) => {
            let asked = timeout(limit, call_method(&service, &identity, request, Some(limit)));
            asked.await.unwrap_or_else(|_| Err(status::deadline()))
        }
        Err(malformed) => Err(malformed.into()),
    };
    let answer = match answer {
        Ok(answer) => v1::TaggedAnswer { tag, answer: Some(answer) },
        Err(status) => encode_refusal(tag, &status),
    };
    (place, answer)
}

fn limit(request: &v1::TaggedRequest) -> DecodeResult<Option<Duration>> {
    let limit = span("timeout", request.timeout.as_ref(), 0..=TIMEOUT_MS_MAX)?;
    Ok(limit.map(Duration::from_millis))
}

/// Calls the method of a request.
async fn call_method(
    service: &GateService,
    identity: &Identity,
    request: v1::TaggedRequest,
    left: Option<Duration>,
) -> Result<Answer, Status> {
    let headers = headers(&request);
    let Some(request) = request.request else {
        return Err(MalformedField::new("request", "is required, and of a kind that this server knows").into());
    };
    Ok(match request {
        Request::Evaluate(message) => {
            Answer::Evaluate(service.evaluate_message(identity, message, &headers, left).await?)
        }
        Request::BatchEvaluate(message) => {
            Answer::BatchEvaluate(service.evaluate_batch(identity, message, &headers, left).await?)
        }
        Request::Record(message) => Answer::Record(service.record_message(identity, message, &headers, left).await?),
        Request::GetSessionState(message) => Answer::GetSessionState(service.session_state(identity, message).await?),
    })
}

/// The trace headers of a request, as a unary call has them.
fn headers(request: &v1::TaggedRequest) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, text) in [("traceparent", &request.traceparent), ("tracestate", &request.tracestate)] {
        if !text.is_empty()
            && let Ok(value) = HeaderValue::from_str(text)
        {
            headers.insert(name, value);
        }
    }
    headers
}

/// The status of a unary call, as a message.
fn encode_refusal(tag: u64, status: &Status) -> v1::TaggedAnswer {
    // Our own details are this very message already; a status without them is from a layer below.
    let told = tonic_types::Status::decode(status.details()).unwrap_or_default();
    let error = tonic_types::Status { code: status.code().into(), message: status.message().to_owned(), ..told };
    v1::TaggedAnswer { tag, answer: Some(Answer::Error(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_answer(tag: u64, bytes: usize) -> v1::TaggedAnswer {
        let answer = v1::RecordResponse { tool_result_json: "x".repeat(bytes), ..Default::default() };
        v1::TaggedAnswer { tag, answer: Some(Answer::Record(answer)) }
    }

    #[test]
    fn a_frame_is_a_message_that_clients_take_and_every_answer_is_in_one() {
        let mut ready = Ready::default();
        for tag in 0..5 {
            ready.push(10, recorded_answer(tag, 1 << 20));
        }
        ready.push(10, recorded_answer(5, MESSAGE_BYTES_MAX));
        let mut tags = Vec::new();
        while !ready.answers.is_empty() {
            let (frame, left) = ready.frame();
            assert!(frame.encoded_len() <= MESSAGE_BYTES_MAX && left == 10 * frame.answers.len());
            tags.extend(frame.answers.iter().map(|answer| answer.tag));
            if let Some(Answer::Error(status)) = frame.answers.last().and_then(|last| last.answer.as_ref()) {
                assert_eq!((status.code, frame.answers.len()), (tonic::Code::OutOfRange.into(), 1));
            }
        }
        assert_eq!(tags, [0, 1, 2, 3, 4, 5]);
    }
}
