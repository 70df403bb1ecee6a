//! A server on a port of its own and the generated client for it, over TCP.

use std::{net::SocketAddr, sync::Arc};

use callgate_core::policy::Policy;
use callgate_net::listener::{Address, BoundListener, Listener, TransportSettings};
use callgate_proto::v1::{self, gate_service_client::GateServiceClient};
use callgate_server::{
    gate::Gate,
    grpc::{self, GrpcSettings, ServeError},
};
use tokio::{sync::oneshot, task::JoinHandle};
use tonic::{
    Code, Response, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_types::StatusExt as _;

use super::{
    STEP,
    certificates::{Authority, Pair},
    gates, in_time,
    postgres::Postgres,
};

pub(crate) type Client = GateServiceClient<Channel>;

/// A served gate with its database.
pub(crate) struct Plane {
    pub(crate) address: SocketAddr,
    pub(crate) gate: Arc<Gate>,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<Result<(), ServeError>>>,
    // Last, so that it outlives the others.
    pub(crate) postgres: Postgres,
}

impl Plane {
    pub(crate) async fn start(policy: &Policy) -> Self {
        Self::serve_with(policy, &TransportSettings::default(), GrpcSettings::default()).await
    }

    /// One that is reached in this way.
    pub(crate) async fn serve_with(policy: &Policy, way: &TransportSettings, settings: GrpcSettings) -> Self {
        let postgres = Postgres::start().await;
        let gate = gates::gate(&postgres, policy).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let (address, listener) = listener(way);
        let serving = Arc::clone(&gate);
        let server = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            grpc::serve(vec![listener], serving, settings, stopped).await
        });
        Self { address, gate, stop: Some(stop), server: Some(server), postgres }
    }

    pub(crate) async fn channel(&self) -> Channel {
        channel(self.address).await
    }

    /// A second replica on the same database, for as long as the test runs.
    #[allow(dead_code, reason = "not every test has two")]
    pub(crate) async fn postgres_gate(&self, policy: &Policy) -> Channel {
        let gate = gates::gate(&self.postgres, policy).await;
        let (address, listener) = listener(&TransportSettings::default());
        tokio::spawn(async move {
            grpc::serve(vec![listener], gate, GrpcSettings::default(), std::future::pending()).await
        });
        channel(address).await
    }

    pub(crate) async fn client(&self) -> Client {
        GateServiceClient::new(self.channel().await)
    }

    /// Number of rows in all tables that a request or report can change.
    pub(crate) async fn row_count(&self) -> i64 {
        let tables = ["call_tree", "session", "call", "outcome", "ledger", "counter"];
        let counts = tables.map(|table| format!("(select count(*) from {table})"));
        self.postgres.number(&format!("select {}", counts.join(" + "))).await
    }

    /// Stops serving, and gives how that went.
    pub(crate) async fn stop(&mut self) -> Result<(), ServeError> {
        drop(self.stop.take());
        let server = self.server.take().expect("stopped once");
        in_time("the end", server).await.expect("no panic")
    }
}

/// A free port, listened on.
fn listener(way: &TransportSettings) -> (SocketAddr, Listener) {
    let bound = BoundListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), way).expect("a free port");
    let (Address::Tcp(address) | Address::Tls(address)) = bound.address() else { unreachable!("it is a port") };
    (address, bound.listen().expect("nobody else has it"))
}

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    in_time("a connection", endpoint.connect()).await.expect("it listens")
}

/// A new connection by TLS that trusts `authority`, and shows this certificate.
pub(crate) async fn tls_channel(
    address: SocketAddr,
    authority: &Authority,
    shown: Option<&Pair>,
) -> Result<Channel, tonic::transport::Error> {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.pem)).domain_name("localhost");
    let tls = match shown {
        Some(pair) => tls.identity(Identity::from_pem(&pair.certificate, &pair.key)),
        None => tls,
    };
    let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
    in_time("a connection", endpoint.tls_config(tls).expect("TLS").connect()).await
}

pub(crate) fn caller(session: &str) -> v1::Caller {
    v1::Caller { session_id: session.to_owned(), ..v1::Caller::default() }
}

pub(crate) fn call(call_id: &str, tool: &str, arguments: &str) -> v1::ToolCall {
    v1::ToolCall {
        call_id: call_id.to_owned(),
        tool: tool.to_owned(),
        arguments_json: arguments.to_owned(),
        ..v1::ToolCall::default()
    }
}

pub(crate) fn question(session: &str, call: v1::ToolCall) -> v1::EvaluateRequest {
    v1::EvaluateRequest { caller: Some(caller(session)), call: Some(call), ..v1::EvaluateRequest::default() }
}

pub(crate) fn outcome(session: &str, call_id: &str, status: v1::OutcomeStatus) -> v1::RecordRequest {
    v1::RecordRequest {
        caller: Some(caller(session)),
        call_id: call_id.to_owned(),
        status: status.into(),
        ..v1::RecordRequest::default()
    }
}

pub(crate) fn success(session: &str, call_id: &str, result: &str) -> v1::RecordRequest {
    let result = Some(result.to_owned());
    v1::RecordRequest { result, ..outcome(session, call_id, v1::OutcomeStatus::Success) }
}

/// A request with a self-given name.
pub(crate) fn from<T>(by: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(callgate_proto::BY, by.parse().expect("ASCII"));
    request
}

/// A request with this token, if any.
pub(crate) fn with_token<T>(token: Option<&str>, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("ASCII"));
    }
    request
}

/// A verdict, asked for as a client does.
pub(crate) async fn evaluate(client: &mut Client, request: v1::EvaluateRequest) -> v1::Verdict {
    evaluate_as(None, client, request).await
}

/// The same, with a token.
pub(crate) async fn evaluate_as(token: Option<&str>, client: &mut Client, request: v1::EvaluateRequest) -> v1::Verdict {
    let ask = || {
        let (mut client, request) = (client.clone(), with_token(token, request.clone()));
        async move { client.evaluate(request).await }
    };
    Box::pin(patiently(ask)).await.verdict.expect("a verdict")
}

/// A report, made as a client does.
pub(crate) async fn record(client: &mut Client, request: v1::RecordRequest) -> v1::RecordResponse {
    record_as(None, client, request).await
}

/// The same, with a token.
pub(crate) async fn record_as(
    token: Option<&str>,
    client: &mut Client,
    request: v1::RecordRequest,
) -> v1::RecordResponse {
    let report = || {
        let (mut client, request) = (client.clone(), with_token(token, request.clone()));
        async move { client.record(request).await }
    };
    Box::pin(patiently(report)).await
}

/// Retries a request while a busy machine makes the store time out, or the server shed it.
async fn patiently<T, F>(send: impl Fn() -> F) -> T
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    let answer = async {
        loop {
            match send().await {
                Err(status) if is_passing(&status) => tokio::time::sleep(STEP).await,
                answer => return answer,
            }
        }
    };
    in_time("an answer", answer).await.expect("an answer").into_inner()
}

fn is_passing(status: &Status) -> bool {
    let is_overloaded = || status.get_details_error_info().is_some_and(|info| info.reason == "OVERLOADED");
    status.code() == Code::Unavailable || is_overloaded()
}

/// The documented pair of an error.
pub(crate) fn pair(status: &Status) -> (Code, String) {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!(info.domain, "callgate");
    (status.code(), info.reason)
}
