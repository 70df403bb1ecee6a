//! Response compression for clients that accept gzip.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use callgate_proto::v1::{self, gate_service_client::GateServiceClient};
use tonic::{
    body::Body,
    codec::CompressionEncoding,
    codegen::{Body as HttpBody, Bytes, Service, http},
    transport::Channel,
};

use crate::common::{
    gates::policy,
    in_time,
    wire::{Plane, call, question, success},
};

/// A channel that keeps the first byte of each response's message: 1 means compressed.
#[derive(Clone)]
struct WatchedChannel(Channel, Arc<Mutex<Vec<u8>>>);

struct WatchedBody(Body, Arc<Mutex<Vec<u8>>>, bool);

impl Service<http::Request<Body>> for WatchedChannel {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (answer, seen) = (self.0.call(request), Arc::clone(&self.1));
        Box::pin(async move { Ok(answer.await?.map(|body| Body::new(WatchedBody(body, seen, false)))) })
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, tonic::Status>>> {
        let frame = Pin::new(&mut self.0).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(first) = frame.data_ref().and_then(|data| data.first())
            && !std::mem::replace(&mut self.2, true)
        {
            self.1.lock().expect("no panic").push(*first);
        }
        frame
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_answer_is_not_compressed_and_a_long_one_is() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let seen = Arc::<Mutex<Vec<u8>>>::default();
    let client = GateServiceClient::new(WatchedChannel(plane.channel().await, Arc::clone(&seen)));
    let mut client = client.accept_compressed(CompressionEncoding::Gzip);

    in_time("a verdict", client.evaluate(question("s", call("c1", "look", "{}")))).await.expect("a verdict");
    in_time("an answer", client.record(success("s", "c1", r#"{"id":1}"#))).await.expect("stored");
    assert_eq!(*seen.lock().expect("no panic"), [0, 0], "short ones are sent as they are");

    in_time("a verdict", client.evaluate(question("s", call("c2", "look", r#"{"n":2}"#)))).await.expect("a verdict");
    let long = format!(r#"{{"text":"{}"}}"#, "word ".repeat(2_000));
    let answer: v1::RecordResponse =
        in_time("an answer", client.record(success("s", "c2", &long))).await.expect("stored").into_inner();
    assert!(answer.tool_result_json.contains("word word"), "it arrives whole");
    assert_eq!(*seen.lock().expect("no panic"), [0, 0, 0, 1]);
}
