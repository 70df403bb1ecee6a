//! Server environment: health, reflection, listeners, and shutdown.

use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::Instant;
use tonic::{Code, Request, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, ServerReflectionResponse, server_reflection_request::MessageRequest,
    server_reflection_response::MessageResponse,
};
use tonic_types::StatusExt as _;

use crate::common::{
    citus,
    gates::policy,
    in_time, until,
    wire::{Plane, call, evaluate, pair, question},
    within,
};

const SERVICE: &str = "callgate.v1.GateService";
/// The database is asked every second, and a commit that failed is believed for five.
const SOON: Duration = Duration::from_secs(8);

async fn health(client: &mut HealthClient<Channel>, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.to_owned() };
    let response = in_time("health", client.check(request)).await.expect("a health service");
    response.into_inner().status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_tells_the_truth_about_the_database() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    let mut checks = HealthClient::new(plane.channel().await);
    let mut all = async |status: ServingStatus| {
        let both = async {
            for service in ["", SERVICE] {
                let request = || HealthCheckRequest { service: service.to_owned() };
                let is = async || {
                    let response = checks.check(request()).await;
                    response.is_ok_and(|response| response.into_inner().status() == status)
                };
                until("health", is).await;
            }
        };
        within(SOON, status.as_str_name(), both).await;
    };
    all(ServingStatus::Serving).await;
    evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;

    let frozen = plane.postgres.freeze();
    all(ServingStatus::NotServing).await;
    let asked = Instant::now();
    let refused = client.evaluate(question("s", call("c2", "look", r#"{"n":2}"#))).await.expect_err("no permit");
    assert_eq!(pair(&refused), (Code::Unavailable, "STORE_UNAVAILABLE".to_owned()));
    assert!(refused.get_details_retry_info().and_then(|info| info.retry_delay).is_some(), "{refused:?}");
    assert!(asked.elapsed() < Duration::from_millis(8_500));
    drop(frozen);
    all(ServingStatus::Serving).await;
    assert!(evaluate(&mut client, question("s", call("c2", "look", r#"{"n":2}"#))).await.permit.is_some());

    plane.postgres.crash().await;
    all(ServingStatus::Serving).await;
    evaluate(&mut client, question("s", call("c3", "look", r#"{"n":3}"#))).await;
    assert_eq!(plane.postgres.number("select count(*) from call").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_not_serving_until_a_commit_would_succeed() {
    if citus::lacks("it makes one server read-only, and the nodes that have the shards go on storing") {
        return;
    }
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    let mut checks = HealthClient::new(plane.channel().await);
    evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
    // A database that answers, and stores nothing.
    let only_reads = async |on: &str| {
        plane.postgres.tamper(&format!("alter system set default_transaction_read_only = {on}")).await;
        plane.postgres.tamper("select pg_reload_conf()").await;
    };
    only_reads("on").await;
    // A backend reloads its settings asynchronously.
    let mut n = 1;
    let refused = loop {
        n += 1;
        let asked = question("s", call(&format!("c{n}"), "look", &format!(r#"{{"n":{n}}}"#)));
        match in_time("a call", client.evaluate(asked)).await {
            Err(refused) => break refused,
            Ok(_) => assert!(n < 100, "the database stores, though it is told not to"),
        }
    };
    assert_eq!(pair(&refused), (Code::Unavailable, "STORE_UNAVAILABLE".to_owned()));
    let mut is = async |status| until("health", async || health(&mut checks, SERVICE).await == status).await;
    within(SOON, "NOT_SERVING", Box::pin(is(ServingStatus::NotServing))).await;
    // Idle, for longer than the failed commit alone counts.
    let serves_again = tokio::time::timeout(Duration::from_secs(8), Box::pin(is(ServingStatus::Serving))).await;
    assert!(serves_again.is_err(), "nothing can be stored");
    only_reads("off").await;
    within(SOON, "SERVING", Box::pin(is(ServingStatus::Serving))).await;
    let asked = question("s", call("c0", "look", r#"{"n":0}"#));
    assert!(evaluate(&mut client, asked).await.permit.is_some());
    assert_eq!(plane.postgres.number("select count(*) from pg_class where relname = 'callgate_trial'").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_known_as_soon_as_the_server_listens() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut checks = HealthClient::new(plane.channel().await);
    for service in ["", SERVICE] {
        health(&mut checks, service).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_shows_the_contract_to_clients_of_both_versions() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = tonic::client::Grpc::new(plane.channel().await);
    let mut ask = async |version: &str, request: MessageRequest| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        client.ready().await.expect("a connection");
        // A stream of one message equals a single one on the wire.
        let codec = ProstCodec::<ServerReflectionRequest, ServerReflectionResponse>::default();
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let path = PathAndQuery::from_maybe_shared(path).expect("a path");
        let stream = in_time("reflection", client.server_streaming(Request::new(request), path, codec)).await;
        let first = in_time("reflection", stream.expect("a stream").into_inner().message()).await;
        first.expect("a message").expect("one").message_response.expect("an answer")
    };
    for version in ["v1", "v1alpha"] {
        let services = ask(version, MessageRequest::ListServices(String::new())).await;
        let MessageResponse::ListServicesResponse(list) = services else { panic!("no list") };
        let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        assert!(names.contains(&SERVICE) && names.contains(&"grpc.health.v1.Health"), "{names:?}");
        let symbol = MessageRequest::FileContainingSymbol(format!("{SERVICE}.Evaluate"));
        let MessageResponse::FileDescriptorResponse(files) = ask(version, symbol).await else { panic!("no file") };
        assert!(!files.file_descriptor_proto.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_client_does_not_keep_the_server_from_ending() {
    let mut plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
    let mut watch = HealthClient::new(plane.channel().await);
    let watching = watch.watch(HealthCheckRequest { service: SERVICE.to_owned() }).await.expect("a stream");
    within(Duration::from_secs(15), "the end", plane.stop()).await.expect("a clean end");
    drop(watching);
    assert!(client.evaluate(question("s", call("c2", "look", "{}"))).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_in_progress_is_answered_before_the_server_ends() {
    let mut plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
    let frozen = plane.postgres.freeze();
    let asked = tokio::spawn(async move { client.evaluate(question("s", call("c2", "look", r#"{"n":2}"#))).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (stopped, answer) = tokio::join!(plane.stop(), async {
        // Longer than a server waits that owes no answer.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        drop(frozen);
        in_time("an answer", asked).await.expect("no panic")
    });
    stopped.expect("a clean end");
    assert!(answer.expect("an answer").into_inner().verdict.is_some_and(|verdict| verdict.permit.is_some()));
}
