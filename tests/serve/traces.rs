//! Trace propagation from a caller into the commit, and from a stored call back to it.

use sqlx::Row as _;
use tonic::Request;

use crate::{
    collector::{Logs, Metrics, ReceivedTelemetry, Span, Traces},
    common::{
        process::signal,
        until,
        wire::{call, question, success},
    },
    server::{Home, Server, ran},
};

const ASKED: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const REPORTED: &str = "5bf92f3577b34da6a3ce929d0e0e4737";
/// The caller's own span.
const CALLER: &str = "00f067aa0ba902b7";

/// Of a trace that its caller does not keep.
const UNKEPT: &str = "6bf92f3577b34da6a3ce929d0e0e4738";

fn below<T>(trace: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let flags = if trace == UNKEPT { "00" } else { "01" };
    let parent = format!("00-{trace}-{CALLER}-{flags}").parse().expect("a header");
    request.metadata_mut().insert("traceparent", parent);
    request
}

fn only<'a>(spans: &'a [Span], name: &str, trace: &str) -> &'a Span {
    let of: Vec<_> = spans.iter().filter(|span| span.name == name && hex::encode(&span.trace_id) == trace).collect();
    let [span] = of[..] else { panic!("{name} in {trace}: {spans:#?}") };
    span
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_ends_in_the_commit_and_a_stored_call_leads_back_to_it() {
    let got = ReceivedTelemetry::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let collector = tonic::transport::Server::builder()
        .add_service(Traces(got.clone()))
        .add_service(Metrics(got.clone()))
        .add_service(Logs(got.clone()))
        .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener));
    let collector = tokio::spawn(collector);
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &["--otlp-endpoint", &endpoint]);
    let mut agent = server.client().await;

    let asked = question("s1", call("c1", "get_order", r#"{"id":1}"#));
    agent.evaluate(below(ASKED, asked)).await.expect("an answer");
    agent.record(below(REPORTED, success("s1", "c1", "open"))).await.expect("an answer");
    let unkept = question("s2", call("c2", "get_order", r#"{"id":2}"#));
    agent.evaluate(below(UNKEPT, unkept)).await.expect("an answer");

    let (code, said, _) = ran(&["explain", "c1", "--server", &format!("http://{}", server.address)]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("trace      {ASKED}\n  reported   in trace {REPORTED}\n")), "{said}");
    let mut database = home.connect().await;
    let stored = "select trace_id, report_trace_id from tool_call where call_id = 'c1'";
    let stored = sqlx::query(stored).fetch_one(&mut database).await.expect("a row");
    let told = |column: &str| stored.try_get::<Option<String>, _>(column).expect("text");
    assert_eq!((told("trace_id").as_deref(), told("report_trace_id").as_deref()), (Some(ASKED), Some(REPORTED)));
    let known = "select trace_id from tool_call where call_id = 'c2'";
    let known: String = sqlx::query_scalar(known).fetch_one(&mut database).await.expect("a row");
    assert_eq!(known, UNKEPT, "its row names the trace, which somebody else may keep");
    drop(database);

    assert!(signal(server.pid(), "TERM"));
    let (status, _) = server.wait_for_end(crate::common::PATIENCE).await;
    assert!(status.success(), "{status}");
    until("the spans", async || got.spans.lock().expect("whole").len() >= 8).await;
    collector.abort();
    let spans = got.spans.lock().expect("whole");
    for (trace, method, work) in [
        (ASKED, "callgate.v1.GateService/Evaluate", "callgate.evaluate"),
        (REPORTED, "callgate.v1.GateService/Record", "callgate.record"),
    ] {
        let (rpc, work) = (only(&spans, method, trace), only(&spans, work, trace));
        let (way, batch) = (only(&spans, "callgate.commit", trace), only(&spans, "SELECT append", trace));
        assert_eq!(hex::encode(&rpc.parent_span_id), CALLER);
        assert_eq!(work.parent_span_id, rpc.span_id);
        assert_eq!((&way.parent_span_id, &batch.parent_span_id), (&work.span_id, &work.span_id));
        assert_eq!(way.links.iter().map(|link| &link.span_id).collect::<Vec<_>>(), [&batch.span_id]);
    }
    let of_unkept: Vec<_> = spans.iter().filter(|span| hex::encode(&span.trace_id) == UNKEPT).collect();
    assert_eq!(of_unkept.len(), 0, "{of_unkept:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_names_its_callers_trace_where_nothing_is_sent_too() {
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &[]);
    let mut agent = server.client().await;
    agent.evaluate(below(ASKED, question("s1", call("c1", "look", "{}")))).await.expect("an answer");
    agent.record(below(REPORTED, success("s1", "c1", "open"))).await.expect("an answer");
    let mut database = home.connect().await;
    let stored = "select trace_id || ' ' || report_trace_id from tool_call where call_id = 'c1'";
    let stored: String = sqlx::query_scalar(stored).fetch_one(&mut database).await.expect("a row");
    assert_eq!(stored, format!("{ASKED} {REPORTED}"));
}
