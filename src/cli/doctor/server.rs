//! Checks of clocks and of a running server.

use std::time::Duration;

use tokio::time::timeout;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use super::check::{Area, DoctorCheck};
use callgate_client::{
    credential::Credential,
    remote::{CredentialArgs, NoResponse, Remote, into_response},
};
use callgate_proto::v1::{GetServerInfoRequest, server_service_client::ServerServiceClient};
use callgate_server::config::{Listen, ServeConfig};
use callgate_store::Inspection;

/// Timeout of the checks.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum difference of clocks, in milliseconds.
const APART_MS: i64 = 2_000;

/// Compares this machine's clock with the database's, which all servers use.
pub(super) fn clock(found: &Inspection) -> DoctorCheck {
    let apart = found.asked_at.as_millis() - found.state.now.as_millis();
    // The database read its clock during the round trip.
    let apart = if apart < 0 { apart } else { (apart - found.round_trip_ms).max(0) };
    let text =
        format!("this machine is {} ms {} the database", apart.abs(), if apart < 0 { "behind" } else { "ahead of" });
    match apart.abs() {
        ..=APART_MS => DoctorCheck::ok(Area::Clock, "database", text),
        _ => DoctorCheck::warning(
            Area::Clock,
            "database",
            format!(
                "{text}: leases and budgets use the database's clock; log lines, certificates and issuers' tokens use \
                     this machine's"
            ),
            "synchronize both by NTP (timedatectl set-ntp true)",
        ),
    }
}

/// Checks the server at `url` or of `context`, otherwise at its default address.
pub(super) async fn server(
    config: &ServeConfig,
    url: &Option<String>,
    context: &Option<String>,
    shown: &CredentialArgs,
) -> Vec<DoctorCheck> {
    let here = || context.is_none().then(|| first(config));
    let remote = Remote::of(url.clone().or_else(here), context.clone(), shown.clone());
    let (url, shown) = match remote.server().and_then(|url| Ok((url, remote.credential()?))) {
        Ok(found) => found,
        Err(error) => {
            let cure = "set --server or --context, and pass readable credential files";
            return vec![DoctorCheck::wrong(Area::Server, "settings", format!("{error:#}"), cure)];
        }
    };
    let looked = timeout(LIMIT, ask(url, shown)).await;
    looked.unwrap_or_else(|_| {
        let cure = "read its log, and check its database: it should answer within a few seconds";
        vec![DoctorCheck::wrong(
            Area::Server,
            "answers",
            format!("no answer from {url} within {} s", LIMIT.as_secs()),
            cure,
        )]
    })
}

fn first(config: &ServeConfig) -> String {
    let scheme = if config.tls.tls_cert.is_some() { "https" } else { "http" };
    match config.listen.first() {
        Some(Listen::Unix(path)) => format!("unix:{}", path.display()),
        Some(Listen::Tcp(address)) if address.ip().is_unspecified() => {
            format!("{scheme}://localhost:{}", address.port())
        }
        Some(Listen::Tcp(address)) => format!("{scheme}://{address}"),
        None => format!("{scheme}://{}", callgate_server::config::LISTEN_DEFAULT),
    }
}

async fn ask(url: &str, shown: &Credential) -> Vec<DoctorCheck> {
    let connected = async { shown.connect(url, shown.bearer()?, "").await };
    let wire = match connected.await {
        Ok(wire) => wire,
        // An unavailable server is a result, too.
        Err(error) if error.is::<NoResponse>() => {
            return vec![DoctorCheck::skipped(Area::Server, "all", format!("{error:#}; start it, or set --server"))];
        }
        Err(error) => {
            let (found, cure) = (format!("{error:#}"), "fix that, or --server, --context, --ca or --token-file");
            return vec![DoctorCheck::wrong(Area::Server, "connection", found, cure)];
        }
    };
    let health = HealthClient::new(wire.clone()).check(HealthCheckRequest::default()).await;
    let health = match health.map(|answer| answer.into_inner().status()) {
        Ok(ServingStatus::Serving) => DoctorCheck::ok(Area::Server, "health", format!("{url} is ready")),
        Ok(status) => DoctorCheck::wrong(
            Area::Server,
            "health",
            format!("{url} reports {}", status.as_str_name()),
            "its database is unavailable: read its log, and the database checks above",
        ),
        Err(_) => {
            let cure = if url.starts_with("http://") {
                "if it serves TLS, use https://; else check which program listens there"
            } else {
                "check which program listens there: it is not callgate"
            };
            return vec![DoctorCheck::wrong(Area::Server, "health", format!("{url} does not answer gRPC"), cure)];
        }
    };
    let own = env!("CARGO_PKG_VERSION");
    let info = into_response(ServerServiceClient::new(wire).get_server_info(GetServerInfoRequest {}).await);
    let version = match info.map(|info| info.server.unwrap_or_default().version) {
        Ok(version) if version == own => DoctorCheck::ok(Area::Server, "version", version),
        Ok(version) => DoctorCheck::warning(
            Area::Server,
            "version",
            format!("{version}, but this program is {own}: the checks are those of {own}"),
            "run the doctor of the server's build, or finish the upgrade",
        ),
        Err(error) => {
            DoctorCheck::skipped(Area::Server, "version", format!("{error:#}: set a credential (CALLGATE_TOKEN)"))
        }
    };
    vec![health, version]
}
