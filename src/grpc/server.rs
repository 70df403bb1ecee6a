//! The listeners: limits, health, reflection, and an end that does not wait for ever.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    codec::CompressionEncoding,
    service::Routes,
    transport::{Server, server::TcpIncoming},
};

use super::{
    approvals::ApprovalService,
    authentication::Authenticated,
    grants::GrantService,
    health,
    info::ServerService,
    limits::{MESSAGE_BYTES_MAX, METADATA_BYTES_MAX},
    listen::{Listener, Listening},
    policies::PolicyService,
    profiles::ProfileService,
    service::GateService,
    sessions::SessionService,
    shortcut::Shortcut,
    stop::{Counted, Stop},
    v1::{
        self, approval_service_server::ApprovalServiceServer, gate_service_server::GateServiceServer,
        grant_service_server::GrantServiceServer, policy_service_server::PolicyServiceServer,
        profile_service_server::ProfileServiceServer, server_service_server::ServerServiceServer,
        session_service_server::SessionServiceServer,
    },
};
use crate::gate::Gate;

/// tonic switches hyper's HTTP/2 protections off unless these are set. Resets: agents cancel calls in bursts.
const STREAMS_MAX: u32 = 200;
const RESET_STREAMS_MAX: usize = 1_024;
/// What one connection may send before any of it is read: four times what one stream may (hyper's 1 MiB), so that a
/// stream that is held back leaves room to the others.
const CONNECTION_WINDOW: u32 = 4 << 20;
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Longest time that calls in progress are waited for at the end.
const DRAIN: Duration = Duration::from_secs(10);
/// After the last answer, how long clients have to take it and to close their connections.
const LINGER: Duration = Duration::from_secs(1);

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
    /// The contract's descriptors cannot be read.
    #[error("reflection failed")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves on all of these until `stop` is done. Then health says so, whoever only waits is told, calls in progress are
/// answered (for ten seconds at most), and what is connected a second later is left.
///
/// # Errors
/// [`ServeError`].
pub async fn serve(
    listeners: Vec<Listener>,
    gate: Arc<Gate>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let told = health::look(&gate, &reporter).await;
    let watcher = tokio::spawn(health::watch(Arc::clone(&gate), reporter.clone(), told));
    let ending = Stop::default();
    let mut servers = JoinSet::new();
    for listener in listeners {
        let others = Routes::new(health_service.clone())
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?);
        servers.spawn(listen(services(others, &gate, &ending), listener, ending.clone()));
    }
    drop(gate);
    let end = {
        let ending = ending.clone();
        async move {
            stop.await;
            watcher.abort();
            health::set(&reporter, tonic_health::ServingStatus::NotServing).await;
            ending.begin();
        }
    };
    tokio::select! {
        // One that fails takes the others with it.
        Some(ended) = servers.join_next() => return outcome(ended),
        () = end => {}
    }
    let answered = async {
        ending.answered().await;
        sleep(LINGER).await;
    };
    let ended = async {
        while let Some(ended) = servers.join_next().await {
            outcome(ended)?;
        }
        Ok(())
    };
    tokio::select! {
        ended = ended => ended,
        // A client that keeps its connection open must not keep the server from ending.
        _ = timeout(DRAIN, answered) => Ok(()),
    }
}

fn outcome(ended: Result<Result<(), ServeError>, JoinError>) -> Result<(), ServeError> {
    ended.unwrap_or_else(|died| std::panic::resume_unwind(died.into_panic()))
}

/// Serves on one listener. The files of a socket go when that is over.
async fn listen(services: Services, listener: Listener, ending: Stop) -> Result<(), ServeError> {
    let begun = async move { ending.begun().await };
    match listener.0 {
        // The builder's own setting does not reach a listener that it did not open, and without this every answer
        // waits 40 ms for the client's delayed acknowledgement.
        Listening::Tcp(listener) => {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            builder().serve_with_incoming_shutdown(services, incoming, begun).await?;
        }
        Listening::Unix(listener, _files) => {
            builder().serve_with_incoming_shutdown(services, UnixListenerStream::new(listener), begun).await?;
        }
    }
    Ok(())
}

type Services = Authenticated<Shortcut<Counted<GateServiceServer<GateService>>>>;

fn services(others: Routes, gate: &Arc<Gate>, ending: &Stop) -> Services {
    let gate = || Arc::clone(gate);
    let others = others
        .add_service(ending.counts(ServerServiceServer::new(ServerService::new(gate()))))
        .add_service(ending.counts(profile_service(gate())))
        .add_service(ending.counts(PolicyServiceServer::new(PolicyService::new(gate()))))
        .add_service(ending.counts(approval_service(gate(), ending.clone())))
        .add_service(ending.counts(GrantServiceServer::new(GrantService::new(gate()))))
        .add_service(ending.counts(session_service(gate(), ending.clone())));
    let front = ending.counts(gate_service(gate(), ending.clone()));
    Authenticated::new(Shortcut { front, others: others.prepare() })
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(v1::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// A server with the limits that callgate serves with.
#[must_use]
pub fn builder() -> Server {
    Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_local_error_reset_streams(Some(RESET_STREAMS_MAX))
        .http2_max_pending_accept_reset_streams(Some(RESET_STREAMS_MAX))
        .http2_max_header_list_size(METADATA_BYTES_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_ANSWER))
}

fn approval_service(gate: Arc<Gate>, stop: Stop) -> ApprovalServiceServer<ApprovalService> {
    ApprovalServiceServer::new(ApprovalService::new(gate, stop))
}

fn session_service(gate: Arc<Gate>, stop: Stop) -> SessionServiceServer<SessionService> {
    SessionServiceServer::new(SessionService::new(gate, stop))
}

fn profile_service(gate: Arc<Gate>) -> ProfileServiceServer<ProfileService> {
    ProfileServiceServer::new(ProfileService::new(gate))
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip)
}

fn gate_service(gate: Arc<Gate>, stop: Stop) -> GateServiceServer<GateService> {
    GateServiceServer::new(GateService::new(gate, stop))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip)
}
