//! Links from calls to their traces.

use callgate_core::{domain::identity::Role, policy};
use callgate_net::listener::TransportSettings;
use callgate_server::{console, grpc::GrpcSettings};
use tonic::Request;

use super::{Browser, serve_console};
use crate::{
    common::{
        in_time,
        wire::{Plane, call, question},
    },
    people::POLICY,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const LINK: &str = "href=\"https://traces.example/t/4bf92f3577b34da6a3ce929d0e0e4736?a=1&#38;b\"";

/// A call with a trace and one without, in one session: the pages of both calls and of the session.
async fn pages(plane: &Plane) -> [String; 3] {
    let mut client = plane.client().await;
    for (call_id, trace) in [("c1", TRACE), ("c2", "")] {
        let arguments = format!(r#"{{"n":"{call_id}"}}"#);
        let mut request = Request::new(question("desk", call(call_id, "get_order", &arguments)));
        if !trace.is_empty() {
            let parent = format!("00-{trace}-00f067aa0ba902b7-01");
            request.metadata_mut().insert("traceparent", parent.parse().expect("a header"));
        }
        in_time("an answer", client.evaluate(request)).await.expect("an answer");
    }
    let mut ada = Browser::of(plane, "ada", &[Role::Analyst]).await;
    let mut pages = Vec::new();
    for path in ["/calls/desk/c1", "/calls/desk/c2", "/sessions/desk"] {
        pages.push(ada.get(path).await.ok());
    }
    pages.try_into().expect("three pages")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_url_links_each_call_with_a_trace() {
    let policy = policy::compile(POLICY).expect("a good policy");
    let trace_url = Some("https://traces.example/t/{trace_id}?a=1&b".into());
    let settings = GrpcSettings { pages: Some(console::router), trace_url, ..GrpcSettings::default() };
    let plane = Plane::serve_with(&policy, &TransportSettings::default(), settings).await;
    let [traced, other, session] = pages(&plane).await;
    assert!(traced.contains(LINK), "{traced}");
    assert!(!other.contains("traces.example"), "{other}");
    assert_eq!(session.matches(LINK).count(), 1, "{session}");
    assert_eq!(session.matches("traces.example").count(), 1, "{session}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_trace_url_a_trace_is_its_id() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    let [traced, _, session] = pages(&plane).await;
    assert!(traced.contains(&format!("<code class=\"wrap\">{TRACE}</code>")), "{traced}");
    assert!(!traced.contains("/t/") && !session.contains(TRACE), "{session}");
}
