//! The command `callgate serve`.

use std::{fmt::Write as _, path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};

use crate::{
    config::{Listen, LogFormat, ServeConfig, SocketOwner, TlsConfig},
    console, expiry, grpc, keys,
    notifications::{self, Destinations},
    plane::{ServerHandle, ServerSetup},
    policy_file::{load_policy, read_policy},
    telemetry::{self, Telemetry},
    tenant_keys::KeyFile,
};
use callgate_client::signal::stop_with;
use callgate_core::{
    domain::budget::{BudgetScope, Budgets},
    policy::Policy,
};
use callgate_net::{
    clock::Clock,
    listener::{
        Address, BoundListener, ConnectionLimits, Operations, SocketPermissions, Tls, TlsFiles, TransportSettings,
        first_lifetime,
    },
};

/// Default number of threads for calls: one less than there are cores, since every answer needs work of the database.
/// Two threads on two cores wake each other for every answer, and take half as much again of the machine for the same
/// calls as one.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

/// Serves until a signal to stop: Ctrl-C, SIGTERM. A second signal ends at once. With JSON lines the error is one of
/// them, and the exit code alone is returned.
pub async fn run(config: ServeConfig) -> anyhow::Result<ExitCode> {
    let is_json = config.log.log_format == LogFormat::Json;
    let started = Telemetry::start(&telemetry::TelemetrySettings {
        log_format: if is_json { telemetry::LineFormat::Json } else { telemetry::LineFormat::Text },
        log_filter: config.log.log.clone(),
        otlp_endpoint: config.log.otlp_endpoint.clone(),
    });
    let telemetry = match started {
        Err(error) if is_json => {
            errln!("{}", serde_json::json!({"level": "ERROR", "message": format!("the server cannot start: {error}")}));
            return Ok(ExitCode::FAILURE);
        }
        started => started?,
    };
    if is_json {
        std::panic::set_hook(Box::new(|panic| tracing::error!("a thread panicked: {panic}")));
    }
    let served = served(config, &telemetry).await;
    if let (true, Err(error)) = (is_json, &served) {
        tracing::error!("the server ends: {error:#}");
    }
    telemetry.shutdown().await;
    if is_json && served.is_err() { Ok(ExitCode::FAILURE) } else { served.map(|()| ExitCode::SUCCESS) }
}

async fn served(config: ServeConfig, telemetry: &Telemetry) -> anyhow::Result<()> {
    let policy = load_policy(config.policy.as_deref())?;
    current(&config.tls)?;
    let auth = keys::load(config.auth.as_deref())?;
    let keys = match config.keys.as_deref() {
        Some(path) => Some(KeyFile::read(path).await?),
        None => None,
    };
    let file = config.policy.as_deref().map(|path| Ok::<_, anyhow::Error>((path, read_policy(path)?))).transpose()?;
    let file = file.as_ref().map(|(path, text)| (*path, text.as_str()));
    let (limits, scrape) = (limits(&config), Some(telemetry.scrape()));
    let pages: grpc::Pages = if config.memory { console::without_pages } else { console::router };
    let pages = (!config.no_console).then_some(pages);
    if config.approvals_webhook.is_some() {
        bail!(
            "--approvals-webhook (CALLGATE_APPROVALS_WEBHOOK) was replaced by --notifications FILE \
             (CALLGATE_NOTIFICATIONS): make a destination of it (docs/notifications.md#from-an-approvals-webhook)"
        );
    }
    let destinations = config.notifications.as_deref().map(Destinations::read).transpose()?;
    let callbacks = destinations.as_ref().map(notifications::callbacks);
    let (origins, trace_url) = (config.connections.origins.clone(), config.trace_url.clone());
    let settings = grpc::GrpcSettings { limits, scrape, origins, pages, trace_url, callbacks };
    let bound = bind_listeners(&config)?;
    let setup = ServerSetup { policy, file, auth, keys, metrics: telemetry.metrics(), settings };
    let mut plane = ServerHandle::start(bound, (!config.memory).then_some(&config.database), setup).await?;
    if let Some(destinations) = &destinations {
        plane.notify(destinations);
    }
    if let Some(exporter) = telemetry.audit_exporter().filter(|_| !config.memory) {
        plane.export_audit(exporter);
    }
    let policy = plane.policy();
    for warning in &policy.warnings {
        tracing::warn!("the policy may not do what its owner meant: {warning}");
    }
    let tell_stop: fn(&str) = match config.log.log_format {
        LogFormat::Text => {
            outln!("{}", greeting(&plane, &policy, &config));
            |text| errln!("callgate: {text}")
        }
        LogFormat::Json => {
            tell_start(&plane, &policy);
            |text| tracing::info!("{text}")
        }
    };
    expiry::compute(&config, &telemetry.metrics());
    let expiry = tokio::spawn(expiry::follow(expiry::list_certificates(&config)));
    let served = plane.run_until(stop_with(tell_stop)).await;
    expiry.abort();
    served
}

/// The greeting as a log line.
fn tell_start(plane: &ServerHandle, policy: &Policy) {
    let addresses: Vec<String> = plane.addresses.iter().map(Address::url).collect();
    let (version, database) = (env!("CARGO_PKG_VERSION"), plane.database());
    tracing::info!(version, database, policy = %policy.version, "callgate serves gRPC on {}", addresses.join(" and "));
}

/// Characters of a token for metrics: as many are no longer guessed.
const OPS_TOKEN_MIN: usize = 24;

/// Takes every address, or none.
fn bind_listeners(config: &ServeConfig) -> anyhow::Result<Vec<BoundListener>> {
    let SocketOwner { user, group } = config.socket_owner.clone().unwrap_or_default();
    let access = SocketPermissions { mode: config.socket_mode, user, group };
    let way = transport_settings(&config.tls)?;
    let bind = |listen: &Listen| match listen {
        Listen::Tcp(address) => BoundListener::bind(*address, &way),
        Listen::Unix(path) => BoundListener::socket(path, &access, &way),
    };
    let mut bound: Vec<BoundListener> = config.listen.iter().map(bind).collect::<Result<_, _>>()?;
    if let Some(address) = config.ops_listen {
        let token = config.ops_token_file.as_deref().map(ops_token).transpose()?;
        let operations = Some(Operations { token, is_open: config.ops_open });
        bound.push(BoundListener::bind(address, &TransportSettings { operations, ..TransportSettings::default() })?);
    }
    Ok(bound)
}

/// The token for metrics.
fn ops_token(path: &Path) -> anyhow::Result<Arc<str>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--ops-token-file {}", path.display()))?;
    let token = text.trim();
    if token.len() < OPS_TOKEN_MIN {
        bail!("--ops-token-file {}: a token has at least {OPS_TOKEN_MIN} characters", path.display());
    }
    Ok(token.into())
}

/// Default lifetime of a connection that other machines can make.
const AGE: Duration = Duration::from_secs(3_600);

/// Limits of connections.
fn limits(config: &ServeConfig) -> ConnectionLimits {
    let is_here = |listen: &Listen| match listen {
        Listen::Tcp(address) => address.ip().to_canonical().is_loopback(),
        Listen::Unix(_) => true,
    };
    let is_public = config.tls.insecure_behind_proxy || !config.listen.iter().all(is_here);
    let config = &config.connections;
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let limits = ConnectionLimits {
        connections: config.connections_max as usize,
        connections_per_address: config.connections_per_address as usize,
        streams: config.streams_max,
        header_bytes: config.header_bytes_max,
        frame_bytes: config.frame_bytes_max,
        resets: config.resets_max as usize,
        handshake: seconds(config.handshake_s),
        idle: seconds(config.connection_idle_s),
        age: config.connection_age_s.map(seconds).or(is_public.then_some(AGE)),
        grace: seconds(config.connection_grace_s),
    };
    limits.within_open_files()
}

/// No client connects to a server with an expired certificate, and a start is when an operator looks.
fn current(config: &TlsConfig) -> anyhow::Result<()> {
    let Some(path) = &config.tls_cert else { return Ok(()) };
    // An unreadable file is reported with the other faults of TLS.
    let end = std::fs::read(path).ok().and_then(|text| first_lifetime(&text)).map(|(_, end)| end);
    let now = Clock::System.now().as_millis() / 1_000;
    if end.is_some_and(|end| i64::try_from(end).is_ok_and(|end| end < now)) {
        bail!(
            "--tls-cert {}: the certificate has expired, and no client would connect: replace it by a new one",
            path.display()
        );
    }
    Ok(())
}

/// Settings of the transport between this server and its callers.
pub fn transport_settings(config: &TlsConfig) -> anyhow::Result<TransportSettings> {
    let tls = match (&config.tls_cert, &config.tls_key) {
        (Some(certificate), Some(key)) => {
            let (client_ca, client_crl) = (config.client_ca.clone(), config.client_crl.clone());
            let files = TlsFiles { certificate: certificate.clone(), key: key.clone(), client_ca, client_crl };
            Some(Arc::new(Tls::open(files).context("TLS cannot be used")?))
        }
        _ => None,
    };
    Ok(TransportSettings { tls, is_behind_proxy: config.insecure_behind_proxy, operations: None })
}

fn greeting(plane: &ServerHandle, policy: &Policy, config: &ServeConfig) -> String {
    let addresses: Vec<String> = plane.addresses.iter().map(ToString::to_string).collect();
    let bold = anstyle::Style::new().bold();
    let mut text = format!(
        "{bold}callgate {}{bold:#} serves gRPC on {bold}{}{bold:#}\n  database  {}\n",
        env!("CARGO_PKG_VERSION"),
        addresses.join(" and "),
        plane.database()
    );
    let has_console = !config.no_console && !config.memory;
    let is_on_a_port = |address: &&Address| !matches!(address, Address::Unix(_));
    if let Some(address) = plane.addresses.iter().find(is_on_a_port).filter(|_| has_console) {
        let _ = writeln!(text, "  console   {}/", address.url());
    }
    if let Some(address) = &plane.operations {
        let _ = writeln!(text, "  metrics   {}/metrics", address.url());
    }
    if let Some(shell) = plane.shell() {
        let _ = writeln!(text, "  shell     {shell}");
    }
    let callers = match plane.wants_credentials() {
        true => "with a credential only",
        false if config.memory => "whoever is on this machine, as admin",
        false => "whoever is on this machine, as admin: there are no credentials yet (callgate tokens create)",
    };
    let _ = writeln!(text, "  callers   {callers}");
    let kept = match plane.with_terms() {
        _ if config.memory => "until this process ends; no console, no audit log, no lists of calls".to_owned(),
        (0, _) => "for ever: nothing is deleted by its age (callgate tenants retention)".to_owned(),
        (terms, all) => format!("{terms} of {all} tenants for their terms (callgate tenants list)"),
    };
    let _ = writeln!(text, "  kept      {kept}");
    let declared = policy.tools().count();
    let from = match &config.policy {
        Some(path) => format!("{} ({}), {declared} tools declared", path.display(), policy.version),
        None if &*policy.version != "default" => format!("stored ({}), {declared} tools declared", policy.version),
        None => "default: nothing is declared about any tool (--policy FILE)".to_owned(),
    };
    let _ = writeln!(text, "  policy    {from}");
    for scope in BudgetScope::ALL {
        let limits = policy.rules.get::<Budgets>().of(scope).iter();
        let limits: Vec<String> = limits.map(|(dimension, limit)| dimension.describe_amount(limit)).collect();
        if !limits.is_empty() {
            let day = if matches!(scope, BudgetScope::Agent | BudgetScope::Tenant) { " a day" } else { "" };
            let _ = writeln!(text, "  budget    {}{day}: {}", scope.as_str().replace('_', " "), limits.join(", "));
        }
    }
    let url = plane.addresses.first().map(Address::url).unwrap_or_default();
    let _ = write!(text, "  try       callgate demo --server {url}\n  stop      Ctrl-C");
    text
}
