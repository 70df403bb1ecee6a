//! Client of the contract's JSON: each call a POST of its own, as callers without gRPC make it.

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use prost::Name;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Value;
use tonic::{Code, Status, body::Body, client::GrpcService};

use callgate_client::remote::AuthenticatedChannel;
use callgate_proto::v1::{self, Decision, EvaluateRequest, RecordRequest, Verdict};

/// A connection, shared by its agents: HTTP/2, as gRPC's.
#[derive(Debug, Clone)]
pub(super) struct JsonConnection {
    channel: AuthenticatedChannel,
    contract: DescriptorPool,
}

impl JsonConnection {
    pub(super) fn new(channel: AuthenticatedChannel) -> anyhow::Result<Self> {
        Ok(Self { channel, contract: DescriptorPool::decode(v1::DESCRIPTORS)? })
    }

    /// The verdict, as far as the bench reads it.
    pub(super) async fn evaluate(&mut self, question: &EvaluateRequest) -> Result<Verdict, Status> {
        let answer = self.ask("Evaluate", question).await?;
        let text = |name: &str| answer["verdict"][name].as_str().unwrap_or_default();
        let decision = Decision::from_str_name(text("decision")).unwrap_or_default().into();
        Ok(Verdict { decision, reason: text("reason").to_owned(), ..Verdict::default() })
    }

    pub(super) async fn record(&mut self, report: &RecordRequest) -> Result<(), Status> {
        self.ask("Record", report).await.map(drop)
    }

    async fn ask<M: Name>(&mut self, method: &str, message: &M) -> Result<Value, Status> {
        let failed = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
        let body = self.encoded(message).map_err(|error| Status::internal(error.to_string()))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("/callgate.v1.GateService/{method}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::new(Full::new(Bytes::from(body))));
        let request = request.map_err(|error| failed(&error))?;
        let channel = &mut self.channel;
        let ready = std::future::poll_fn(|cx| GrpcService::<Body>::poll_ready(channel, cx)).await;
        ready.map_err(|error| failed(&error))?;
        let response = channel.call(request).await.map_err(|error| failed(&error))?;
        let is_ok = response.status().is_success();
        let body = response.into_body().collect().await.map_err(|error| failed(&error))?.to_bytes();
        let answer: Value = serde_json::from_slice(&body).map_err(|error| failed(&error))?;
        if is_ok { Ok(answer) } else { Err(status(&answer)) }
    }

    /// A message as callers write it: without what has no value.
    fn encoded<M: Name>(&self, message: &M) -> anyhow::Result<Vec<u8>> {
        let descriptor = self.contract.get_message_by_name(&M::full_name()).context("no such message")?;
        let message = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())?;
        Ok(serde_json::to_vec(&message)?)
    }
}

/// An error of the Connect protocol.
fn status(error: &Value) -> Status {
    let text = |name: &str| error[name].as_str().unwrap_or_default();
    let code = match text("code") {
        "resource_exhausted" => Code::ResourceExhausted,
        "unavailable" => Code::Unavailable,
        "aborted" => Code::Aborted,
        "deadline_exceeded" => Code::DeadlineExceeded,
        "unauthenticated" => Code::Unauthenticated,
        _ => Code::Unknown,
    };
    Status::new(code, text("message"))
}
