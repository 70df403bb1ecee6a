//! Connect: many sessions on one stream.

use std::{collections::BTreeMap, time::Duration};

use callgate_core::policy::Policy;
use callgate_proto::{
    time::duration,
    v1::{self, Decision, OutcomeStatus, tagged_answer::Answer, tagged_request::Request as Asked},
};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

use crate::{
    common::{
        gates::policy,
        in_time, until,
        wire::{Client, Plane, call, caller, evaluate, outcome, pair, question, record, success},
    },
    people,
};

/// A stream as a client has it.
pub(crate) struct ClientStream {
    to: Option<mpsc::Sender<v1::ConnectRequest>>,
    from: Streaming<v1::ConnectResponse>,
    limits: v1::StreamLimits,
}

impl ClientStream {
    pub(crate) async fn open(mut client: Client) -> Self {
        let (to, frames) = mpsc::channel(4_096);
        let mut from =
            in_time("a stream", client.connect(ReceiverStream::new(frames))).await.expect("one").into_inner();
        let first = in_time("the limits", from.message()).await.expect("a frame").expect("a frame");
        assert!(first.answers.is_empty(), "nothing was asked: {first:?}");
        Self { to: Some(to), from, limits: first.limits.expect("limits") }
    }

    pub(crate) async fn send(&self, requests: impl IntoIterator<Item = v1::TaggedRequest>) {
        let frame = v1::ConnectRequest { requests: requests.into_iter().collect() };
        in_time("room", self.to.as_ref().expect("open").send(frame)).await.expect("a server");
    }

    /// The answers of one frame; none at the end.
    pub(crate) async fn frame(&mut self) -> Result<Option<Vec<v1::TaggedAnswer>>, Status> {
        let frame = in_time("a frame", self.from.message()).await?;
        Ok(frame.map(|frame| {
            assert!(!frame.answers.is_empty() && frame.limits.is_none(), "{frame:?}");
            frame.answers
        }))
    }

    /// Receives `count` responses, by tag.
    pub(crate) async fn answers(&mut self, count: usize) -> BTreeMap<u64, Answer> {
        let mut answers = BTreeMap::new();
        while answers.len() < count {
            for answer in self.frame().await.expect("answers").expect("the stream is open") {
                let twice = answers.insert(answer.tag, answer.answer.expect("an answer"));
                assert!(twice.is_none(), "{} was answered twice", answer.tag);
            }
        }
        answers
    }

    pub(crate) async fn answer(&mut self, request: v1::TaggedRequest) -> Answer {
        let tag = request.tag;
        self.send([request]).await;
        self.answers(1).await.remove(&tag).expect("its answer")
    }
}

pub(crate) fn tag_request(tag: u64, request: Asked) -> v1::TaggedRequest {
    v1::TaggedRequest { tag, request: Some(request), ..Default::default() }
}

/// A call that waits for approval.
fn waits() -> v1::EvaluateRequest {
    v1::EvaluateRequest { max_wait: Some(duration(60_000)), ..people::delete("s", "c1", r#"{"id":1}"#) }
}

pub(crate) fn verdict(answer: &Answer) -> &v1::Verdict {
    match answer {
        Answer::Evaluate(answer) => answer.verdict.as_ref().expect("a verdict"),
        other => panic!("no verdict: {other:?}"),
    }
}

/// The error of a request as its own call would have got it.
pub(crate) fn error(answer: &Answer) -> Status {
    let Answer::Error(status) = answer else { panic!("no error: {answer:?}") };
    Status::with_details(Code::from(status.code), status.message.clone(), status.encode_to_vec().into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_share_a_stream_and_every_request_gets_its_own_answer() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut line = ClientStream::open(plane.client().await).await;
    const SESSIONS: u64 = 50;
    for round in 0..4 {
        let asks = (0..SESSIONS).map(|n| {
            let call = call(&format!("c{round}"), "pay", &format!(r#"{{"n":{n},"round":{round}}}"#));
            tag_request(n, Asked::Evaluate(question(&format!("s{n}"), call)))
        });
        line.send(asks).await;
        for (tag, answer) in line.answers(SESSIONS as usize).await {
            let verdict = verdict(&answer);
            assert_eq!((verdict.decision(), verdict.call_id.clone()), (Decision::Allow, format!("c{round}")), "{tag}");
        }
        let reports = (0..SESSIONS).map(|n| {
            let result = format!("{n} paid");
            tag_request(n, Asked::Record(success(&format!("s{n}"), &format!("c{round}"), &result)))
        });
        line.send(reports).await;
        for (tag, answer) in line.answers(SESSIONS as usize).await {
            let Answer::Record(recorded) = answer else { panic!("{answer:?}") };
            assert_eq!(recorded.status(), OutcomeStatus::Success);
            assert!(recorded.tool_result_json.contains(&format!("{tag} paid")), "{recorded:?}");
        }
    }
    let state = v1::GetSessionStateRequest { session_id: "s7".into(), last_calls: 0, summary_tokens: 0 };
    let Answer::GetSessionState(state) = line.answer(tag_request(1, Asked::GetSessionState(state))).await else {
        panic!("no state")
    };
    assert_eq!(state.state.expect("a state").calls.len(), 4);
    assert_eq!(plane.postgres.number("select count(*) from outcome").await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_holds_up_nobody_and_answers_come_as_they_are_ready() {
    let plane = people::plane().await;
    let mut line = ClientStream::open(plane.client().await).await;
    let looks = (2..40).map(|n| {
        tag_request(n, Asked::Evaluate(question(&format!("s{n}"), call("c", "get_order", &format!(r#"{{"id":{n}}}"#)))))
    });
    line.send([tag_request(1, Asked::Evaluate(waits()))].into_iter().chain(looks)).await;
    assert!(line.answers(38).await.keys().all(|tag| *tag > 1), "the first one waits for a person");
    let approvals = v1::approval_service_client::ApprovalServiceClient::new(plane.channel().await);
    let open = approvals.clone().list_approvals(v1::ListApprovalsRequest::default()).await.expect("a list");
    let question = &open.into_inner().approvals[0].approval_id;
    people::resolve(approvals, people::answer(question, "eve", true, "")).await.expect("an answer");
    let answers = line.answers(1).await;
    assert_eq!(verdict(&answers[&1]).decision(), Decision::Allow);
}

/// Invalid requests with their problem, the same alone and on a stream.
fn mistakes() -> Vec<Asked> {
    let parent = v1::Caller { parent_session_id: "p".into(), ..caller("s") };
    let moved = v1::EvaluateRequest { caller: Some(parent), ..question("s", call("c3", "look", "{}")) };
    let long = "x".repeat(300);
    let batch = |calls| v1::BatchEvaluateRequest { caller: Some(caller("s")), calls, ..Default::default() };
    let state = |session: &str| {
        Asked::GetSessionState(v1::GetSessionStateRequest { session_id: session.into(), ..Default::default() })
    };
    vec![
        Asked::Evaluate(v1::EvaluateRequest::default()),
        Asked::Evaluate(question("", call("c1", "look", "{}"))),
        Asked::Evaluate(question("s", call(&long, "look", "{}"))),
        Asked::Evaluate(question("s", call("c1", "pay", r#"{"n":2}"#))),
        Asked::Evaluate(moved),
        Asked::Evaluate(v1::EvaluateRequest {
            max_wait: Some(duration(60_001)),
            ..question("s", call("c4", "look", "{}"))
        }),
        Asked::BatchEvaluate(batch(vec![])),
        Asked::BatchEvaluate(batch(vec![call("c5", "look", "{}"), call("c5", "look", "{}")])),
        Asked::Record(success("s", "nobody", "x")),
        Asked::Record(success("s", "c2", "x")),
        Asked::Record(outcome("s", "c1", OutcomeStatus::Cancelled)),
        Asked::Record(outcome("s", "c1", OutcomeStatus::Error)),
        Asked::Record(outcome("s", "c1", OutcomeStatus::Unspecified)),
        state("nowhere"),
        state(""),
    ]
}

/// The error of a call of its own.
async fn unary(client: &mut Client, request: Asked) -> Status {
    let refused = match request {
        Asked::Evaluate(message) => in_time("an answer", client.evaluate(message)).await.err(),
        Asked::BatchEvaluate(message) => in_time("an answer", client.batch_evaluate(message)).await.err(),
        Asked::Record(message) => in_time("an answer", client.record(message)).await.err(),
        Asked::GetSessionState(message) => in_time("an answer", client.get_session_state(message)).await.err(),
    };
    refused.expect("refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_the_same_as_that_of_a_call_of_its_own_and_ends_nothing() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "pay", r#"{"n":1}"#))).await;
    evaluate(&mut client, question("s", call("c2", "pay", r#"{"n":1}"#))).await;
    record(&mut client, success("s", "c1", "paid")).await;
    let rows = plane.row_count().await;
    let mut line = ClientStream::open(client.clone()).await;
    line.send(mistakes().into_iter().zip(0..).map(|(request, tag)| tag_request(tag, request))).await;
    let answers = line.answers(mistakes().len()).await;
    for (tag, request) in (0..).zip(mistakes()) {
        let (alone, here) = (Box::pin(unary(&mut client, request.clone())).await, error(&answers[&tag]));
        assert_eq!((here.code(), here.message()), (alone.code(), alone.message()), "{request:?}");
        assert_eq!(here.get_error_details_vec().len(), alone.get_error_details_vec().len(), "{request:?}");
        assert_eq!(here.details(), alone.details(), "{request:?}");
    }
    assert_eq!(plane.row_count().await, rows);

    let nothing = error(&line.answer(v1::TaggedRequest { tag: 1, ..Default::default() }).await);
    assert_eq!(pair(&nothing), (Code::InvalidArgument, "INVALID_FIELD".into()));
    let look = Asked::Evaluate(question("s", call("c9", "look", "{}")));
    let negative = Some(prost_types::Duration { seconds: -1, nanos: 0 });
    let nothing = error(&line.answer(v1::TaggedRequest { timeout: negative, ..tag_request(2, look.clone()) }).await);
    assert_eq!(pair(&nothing), (Code::InvalidArgument, "INVALID_FIELD".into()));
    assert_eq!(verdict(&line.answer(tag_request(3, look)).await).decision(), Decision::Allow, "the stream goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_has_a_deadline_of_its_own() {
    let plane = people::plane().await;
    let mut line = ClientStream::open(plane.client().await).await;
    let hasty = v1::TaggedRequest { timeout: Some(duration(300)), ..tag_request(1, Asked::Evaluate(waits())) };
    let status = error(&line.answer(hasty).await);
    assert_eq!(pair(&status), (Code::DeadlineExceeded, "DEADLINE".into()), "{status:?}");
    let look = Asked::Evaluate(question("s2", call("c1", "get_order", "{}")));
    let patient = v1::TaggedRequest { timeout: Some(duration(60_000)), ..tag_request(2, look) };
    assert_eq!(verdict(&line.answer(patient).await).decision(), Decision::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_no_more_to_ask_gets_all_its_answers() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut line = ClientStream::open(plane.client().await).await;
    let asks = (0..100).map(|n| {
        tag_request(
            n,
            Asked::Evaluate(question(
                &format!("s{}", n % 7),
                call(&format!("c{n}"), "look", &format!("{{\"n\":{n}}}")),
            )),
        )
    });
    line.send(asks).await;
    drop(line.to.take());
    assert_eq!(line.answers(100).await.len(), 100);
    assert_eq!(line.frame().await.expect("OK"), None, "and then the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_a_disconnected_client_are_stored() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let line = ClientStream::open(plane.client().await).await;
    let asks = (0..20).map(|n| {
        tag_request(n, Asked::Evaluate(question(&format!("s{n}"), call("c1", "pay", &format!("{{\"n\":{n}}}")))))
    });
    line.send(asks).await;
    let judged = "select count(*) from call";
    until("the first of them", async || plane.postgres.number(judged).await > 0).await;
    drop(line);
    let mut client = plane.client().await;
    for n in 0..20 {
        let again = question(&format!("s{n}"), call("c1", "pay", &format!("{{\"n\":{n}}}")));
        assert_eq!(evaluate(&mut client, again).await.decision(), Decision::Allow, "{n}");
    }
    assert_eq!(plane.postgres.number(judged).await, 20, "nothing twice");
    let keys = plane.postgres.number("select count(distinct idempotency_key) from call").await;
    assert_eq!(keys, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_for_more_than_may_be_in_flight_is_held_back_and_served() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    let mut line = ClientStream::open(client.clone()).await;
    let most = u64::from(line.limits.requests);
    assert_eq!((most, line.limits.bytes), (1_024, 16 << 20));
    const SESSIONS: u64 = 64;
    for n in 0..SESSIONS {
        evaluate(&mut client, question(&format!("s{n}"), call("first", "look", "{}"))).await;
    }
    // They wait for the end of that.
    let twin = |tag: u64| {
        let twin = question(&format!("s{}", tag % SESSIONS), call(&format!("c{tag}"), "look", "{}"));
        tag_request(tag, Asked::Evaluate(v1::EvaluateRequest { max_wait: Some(duration(60_000)), ..twin }))
    };
    let judged = "select count(distinct call_id) from call where session_id like 's%'";
    // Not all at once, which would be more than are judged in time.
    for begun in (0..most).step_by(128) {
        line.send((begun..begun + 128).map(twin)).await;
        until("them to wait", async || plane.postgres.number(judged).await > (begun + 128) as i64).await;
    }
    let look = |tag| tag_request(tag, Asked::Evaluate(question("other", call(&format!("c{tag}"), "put", "{}"))));
    line.send([look(most), look(most + 1)]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = "select count(*) from call where session_id = 'other'";
    assert_eq!(plane.postgres.number(begun).await, 0, "there is no place for them");
    // Calls of their own are served meanwhile, on the same connection too; the end of this one lets the others go.
    for n in 0..SESSIONS {
        record(&mut client, success(&format!("s{n}"), "first", "row")).await;
    }
    assert_eq!(line.answers(most as usize + 2).await.len() as u64, most + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_answers_what_it_has_read_and_says_so() {
    let mut plane = people::plane().await;
    let mut line = ClientStream::open(plane.client().await).await;
    line.send([tag_request(1, Asked::Evaluate(waits()))]).await;
    let judged = "select count(*) from call where call_id = 'c1'";
    until("the question", async || plane.postgres.number(judged).await > 0).await;
    let (stopped, ended) = tokio::join!(plane.stop(), async {
        let answers = line.answers(1).await;
        (error(&answers[&1]), line.frame().await.expect_err("the end"))
    });
    stopped.expect("in order");
    for status in [ended.0, ended.1] {
        assert_eq!(pair(&status), (Code::Unavailable, "SHUTTING_DOWN".into()), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_stream_does_not_keep_a_server_from_its_end() {
    let mut plane = Plane::start(&Policy::default()).await;
    let mut line = ClientStream::open(plane.client().await).await;
    let (stopped, ended) = tokio::join!(plane.stop(), line.frame());
    stopped.expect("in order");
    assert_eq!(pair(&ended.expect_err("the end")), (Code::Unavailable, "SHUTTING_DOWN".into()));
}
