//! The services behind the listeners, with health, reflection, and a bounded shutdown.

use std::{future::Future, sync::Arc, time::Duration};

use axum::extract::Request;
use http::HeaderValue;
use tokio::{
    task::{JoinError, JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tonic::{codec::CompressionEncoding, service::Routes};

use super::{
    adapters::{Front, Pinned},
    approvals::ApprovalService,
    audit::AuditService,
    authentication,
    dialects::Dialects,
    ext_authz::ExtAuthz,
    fleet::FleetService,
    grants::GrantService,
    health, hook_route,
    in_process::Inside,
    info::ServerService,
    limits::MESSAGE_BYTES_MAX,
    policies::PolicyService,
    privacy::PrivacyService,
    profiles::ProfileService,
    service::GateService,
    sessions::SessionService,
    shutdown::Stop,
    status,
    tenants::TenantService,
    tokens::TokenService,
};
use crate::{
    gate::{Gate, Identities, Insight, NoAnswer, ServerState},
    telemetry::{Metrics, Scrape},
    web::{self, RouteSources},
};
use callgate_core::domain::identity::Identity;
use callgate_net::listener::{self, ConnectionLimits, Listener};
use callgate_proto::envoy::authorization_server::AuthorizationServer;
use callgate_proto::v1::{
    self, approval_service_server::ApprovalServiceServer, audit_service_server::AuditServiceServer,
    fleet_service_server::FleetServiceServer, gate_service_server::GateServiceServer,
    grant_service_server::GrantServiceServer, policy_service_server::PolicyServiceServer,
    privacy_service_server::PrivacyServiceServer, profile_service_server::ProfileServiceServer,
    server_service_server::ServerServiceServer, session_service_server::SessionServiceServer,
    tenant_service_server::TenantServiceServer, token_service_server::TokenServiceServer,
};

/// Longest time that calls in progress are waited for at the end.
const DRAIN: Duration = Duration::from_secs(10);
/// Time after the last answer in which clients take it and close their connections.
const LINGER: Duration = Duration::from_secs(1);

/// Errors that end the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The contract's descriptors cannot be read.
    #[error("reflection failed")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Settings of the services.
#[derive(Debug, Clone, Default)]
pub struct GrpcSettings {
    /// Limits of connections.
    pub limits: ConnectionLimits,
    /// The metrics, for `/metrics`.
    pub scrape: Option<Scrape>,
    /// Origins of pages in browsers that may ask.
    pub origins: Vec<HeaderValue>,
    /// Pages for people, beside the calls.
    pub pages: Option<Pages>,
    /// URL template of a trace; `{trace_id}` stands for its id.
    pub trace_url: Option<Arc<str>>,
    /// Routes that notified destinations call back.
    pub callbacks: Option<Callbacks>,
}

/// Makes routes that authenticate their callers themselves; none where nobody calls back.
#[derive(Clone)]
pub struct Callbacks(pub Arc<MakeCallbacks>);

/// As [`Callbacks`] has it.
type MakeCallbacks = dyn Fn(&Arc<Gate>) -> Option<axum::Router> + Send + Sync;

impl std::fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callbacks")
    }
}

/// Makes the pages of the console, which call the services as their user.
pub type Pages = fn(Inside, Arc<Identities>, Option<Arc<str>>) -> axum::Router;

/// Serves on all of these while the database is waited for, until `opened` is done: health is NOT_SERVING, and other
/// requests are rejected, since the database does not respond. Returns the listeners, with the result of `opened`.
pub async fn starting<T>(
    listeners: Vec<Listener>,
    settings: &GrpcSettings,
    opened: impl Future<Output = T>,
) -> (Vec<Listener>, T) {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let reporter = health::Reporter::new(reporter);
    reporter.start().await;
    let (server, ending, mut servers) =
        (listener::ListenerContext::new(settings.limits.clone()), Stop::default(), JoinSet::new());
    let sources = RouteSources { scrape: settings.scrape.clone(), readiness: reporter.readiness() };
    for listener in listeners {
        let web = match listener.operations() {
            Some(operations) => web::operations(sources.clone(), operations.token.clone(), operations.is_open),
            None => web::starting(sources.clone()).fallback(async |request: Request| {
                authentication::answer(status::gate(NoAnswer::OutOfReach("it starts".into())), request.headers())
            }),
        };
        let health_service = listener.operations().is_none().then(|| health_service.clone());
        let mut routes = Routes::from(web);
        if let Some(health_service) = health_service {
            routes = routes.add_service(health_service);
        }
        let (server, front, ending) = (server.clone(), Front(Pinned(routes.prepare())), ending.subscribe());
        servers.spawn(async move {
            let mut connections = server.accept(&listener, front, ending).await;
            let _ = timeout(LINGER, async { while connections.join_next().await.is_some() {} }).await;
            listener
        });
    }
    let opened = opened.await;
    ending.begin();
    (servers.join_all().await, opened)
}

/// Serves on all of these until `stop` is done. Then health says so, waits end, calls in progress are answered (for ten
/// seconds at most), and connections are dropped a second later.
///
/// # Errors
/// [`ServeError`].
pub async fn serve(
    listeners: Vec<Listener>,
    gate: Arc<Gate>,
    settings: GrpcSettings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let reporter = health::Reporter::new(reporter);
    let told = health::check_health(&gate.server, &reporter).await;
    let watcher = tokio::spawn(health::watch(Arc::clone(&gate.server), reporter.clone(), told));
    // All listeners have the same.
    let tls = listeners.iter().find_map(Listener::tls).cloned();
    let follower = tls.map(|tls| tokio::spawn(async move { tls.follow().await }));
    let ending = Stop::default();
    let (server, mut servers) = (listener::ListenerContext::new(settings.limits), JoinSet::new());
    let sources = RouteSources { scrape: settings.scrape, readiness: reporter.readiness() };
    let callbacks = settings.callbacks.and_then(|callbacks| (callbacks.0)(&gate)).unwrap_or_default();
    let web = web::router(sources.clone()).merge(hook_route::router(hooks(&gate, &ending))).merge(callbacks);
    let pages = settings.pages.map(|pages| {
        let inside = Inside(Services::new(Routes::default(), &gate, &ending));
        pages(inside, Arc::clone(&gate.identities), settings.trace_url)
    });
    let others = add_routes(web, pages)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    let services = Dialects::new(Services::new(others, &gate, &ending), &settings.origins);
    for listener in listeners {
        if let Some(operations) = listener.operations() {
            let routes =
                Routes::from(web::operations(sources.clone(), operations.token.clone(), operations.is_open)).prepare();
            let (server, front) = (server.clone(), Front(Pinned(routes)));
            let ending = ending.subscribe();
            servers.spawn(async move { server.serve(listener, front, ending).await });
            continue;
        }
        let (server, front) = (server.clone(), Front(services.clone()));
        let ending = ending.subscribe();
        servers.spawn(async move { server.serve(listener, front, ending).await });
    }
    drop((gate, services));
    let end = {
        let ending = ending.clone();
        async move {
            stop.await;
            watcher.abort();
            follower.inspect(JoinHandle::abort);
            reporter.end().await;
            ending.begin();
        }
    };
    tokio::select! {
        // Only a panic ends one early.
        Some(ended) = servers.join_next() => return outcome(ended),
        () = end => {}
    }
    let answered = async {
        ending.wait_for_answers().await;
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

fn outcome(ended: Result<(), JoinError>) -> Result<(), ServeError> {
    ended.map_or_else(|died| std::panic::resume_unwind(died.into_panic()), Ok)
}

/// Routes beside those of services; other paths go to the pages, or get gRPC's error.
fn add_routes(web: axum::Router, pages: Option<axum::Router>) -> Routes {
    let mut routes = Routes::default();
    let router = std::mem::take(routes.axum_router_mut()).merge(web);
    *routes.axum_router_mut() = match pages {
        Some(pages) => router.fallback_service(pages),
        None => router,
    };
    routes
}

/// The services, behind the steps of every request: it is observed (`observed.rs`), authenticated
/// (`authentication.rs`), held to a tenant that is served (`tenancy.rs`), and then routed (`shortcut.rs`).
#[derive(Debug, Clone)]
pub(super) struct Services(pub(super) Arc<ServiceParts>);

/// Parts of the services that all requests share.
#[derive(Debug)]
pub(super) struct ServiceParts {
    pub(super) server: Arc<ServerState>,
    pub(super) identities: Arc<Identities>,
    pub(super) metrics: Arc<Metrics>,
    /// Identity of callers where no credential is needed.
    pub(super) local: Arc<Identity>,
    pub(super) stop: Stop,
    /// Nearly all calls are its.
    pub(super) front: GateServiceServer<GateService>,
    pub(super) others: Routes,
}

impl Services {
    fn new(others: Routes, gate: &Gate, ending: &Stop) -> Self {
        let Gate { server, decisions, policies, approvals, identities, privacy, insight, .. } = gate;
        let stop = || ending.clone();
        let others = others
            .add_service(ServerServiceServer::new(ServerService::new(Arc::clone(server), gate.store.is_in_memory())))
            .add_service(profile_service(Arc::clone(insight)))
            .add_service(PolicyServiceServer::new(PolicyService::new(Arc::clone(policies), stop())))
            .add_service(ApprovalServiceServer::new(ApprovalService::new(Arc::clone(approvals), stop())))
            .add_service(AuditServiceServer::new(AuditService::new(Arc::clone(privacy))))
            .add_service(FleetServiceServer::new(FleetService::new(Arc::clone(insight))))
            .add_service(PrivacyServiceServer::new(PrivacyService::new(Arc::clone(privacy), stop())))
            .add_service(TokenServiceServer::new(TokenService::new(Arc::clone(identities))))
            .add_service(GrantServiceServer::new(GrantService::new(Arc::clone(decisions))))
            .add_service(TenantServiceServer::new(TenantService::new(Arc::clone(identities))))
            .add_service(SessionServiceServer::new(sessions(gate, stop())))
            .add_service(authorization(gate, stop()));
        Self(Arc::new(ServiceParts {
            server: Arc::clone(server),
            identities: Arc::clone(identities),
            metrics: Arc::new(server.metrics().clone()),
            local: Arc::new(Identity::local()),
            stop: stop(),
            front: gate_service(gate, stop()),
            others: others.prepare(),
        }))
    }
}

fn hooks(gate: &Gate, ending: &Stop) -> hook_route::Hooks {
    hook_route::Hooks {
        approvals: Arc::clone(&gate.approvals),
        calls: GateService::new(gate, ending.clone()),
        sessions: sessions(gate, ending.clone()),
        stop: ending.clone(),
        known: hook_route::SessionMemory::default(),
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(v1::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn sessions(gate: &Gate, stop: Stop) -> SessionService {
    SessionService::new(Arc::clone(&gate.decisions), Arc::clone(&gate.insight), stop)
}

fn profile_service(insight: Arc<Insight>) -> ProfileServiceServer<ProfileService> {
    ProfileServiceServer::new(ProfileService::new(insight))
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip)
}

fn authorization(gate: &Gate, stop: Stop) -> AuthorizationServer<ExtAuthz> {
    let calls = GateService::new(gate, stop.clone());
    AuthorizationServer::new(ExtAuthz { calls, server: Arc::clone(&gate.server), stop })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
}

fn gate_service(gate: &Gate, stop: Stop) -> GateServiceServer<GateService> {
    GateServiceServer::new(GateService::new(gate, stop))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip)
}
