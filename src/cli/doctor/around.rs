//! Checks of clocks and of a running server.

use std::time::Duration;

use tokio::time::timeout;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use super::check::{Area, Check};
use callgate_client::{
    credential::Credential,
    remote::{Remote, Shown, Unanswered, asked},
};
use callgate_proto::v1::{GetServerInfoRequest, server_service_client::ServerServiceClient};
use callgate_server::config::{Listen, ServeConfig};
use callgate_store::Inspection;

/// Timeout of the checks.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum difference of clocks, in milliseconds.
const APART_MS: i64 = 2_000;

/// Compares this machine's clock with the database's, which all servers use.
pub(super) fn clock(found: &Inspection) -> Check {
    let apart = found.asked_at.as_millis() - found.state.now.as_millis();
    // The database read its clock during the round trip.
    let apart = if apart < 0 { apart } else { (apart - found.round_trip_ms).max(0) };
    let text =
        format!("this machine is {} ms {} the database", apart.abs(), if apart < 0 { "behind" } else { "ahead of" });
    match apart.abs() {
        ..=APART_MS => Check::ok(Area::Clock, "database", text),
        _ => Check::warning(
            Area::Clock,
            "database",
            format!(
                "{text}: leases and budgets go by the database's, log lines, certificates and tokens of issuers by \
                     this one's"
            ),
            "set both by NTP (timedatectl set-ntp true)",
        ),
    }
}

/// Checks the server at `url` or of `context`, otherwise at its default address.
pub(super) async fn server(
    config: &ServeConfig,
    url: &Option<String>,
    context: &Option<String>,
    shown: &Shown,
) -> Vec<Check> {
    let here = || context.is_none().then(|| first(config));
    let remote = Remote::of(url.clone().or_else(here), context.clone(), shown.clone());
    let (url, shown) = match remote.server().and_then(|url| Ok((url, remote.credential()?))) {
        Ok(found) => found,
        Err(error) => {
            let cure = "name the server by --server or --context, and what is shown to it by files that can be read";
            return vec![Check::wrong(Area::Server, "settings", format!("{error:#}"), cure)];
        }
    };
    let looked = timeout(LIMIT, ask(url, shown)).await;
    looked.unwrap_or_else(|_| {
        let cure = "look at its log and at its database; more than one answer in five seconds is expected of it";
        vec![Check::wrong(Area::Server, "answers", format!("nothing from {url} within {} s", LIMIT.as_secs()), cure)]
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

async fn ask(url: &str, shown: &Credential) -> Vec<Check> {
    let connected = async { shown.connect(url, shown.bearer()?, "").await };
    let wire = match connected.await {
        Ok(wire) => wire,
        // An unavailable server is a result, too.
        Err(error) if error.is::<Unanswered>() => {
            return vec![Check::not(Area::Server, "all", format!("{error:#}; start it, or name it by --server"))];
        }
        Err(error) => {
            let (found, cure) =
                (format!("{error:#}"), "mend that, or what --server, --context, --ca or --token-file say");
            return vec![Check::wrong(Area::Server, "connection", found, cure)];
        }
    };
    let health = HealthClient::new(wire.clone()).check(HealthCheckRequest::default()).await;
    let health = match health.map(|answer| answer.into_inner().status()) {
        Ok(ServingStatus::Serving) => Check::ok(Area::Server, "health", format!("{url} serves")),
        Ok(status) => Check::wrong(
            Area::Server,
            "health",
            format!("{url} says {}", status.as_str_name()),
            "its database does not answer it: look at its log, and at what is said of the database above",
        ),
        Err(_) => {
            let cure = if url.starts_with("http://") {
                "if it serves with a certificate, name it as https://; else look what it is that listens there"
            } else {
                "look what it is that listens there: it does not answer as callgate does"
            };
            return vec![Check::wrong(Area::Server, "health", format!("{url} gives no answer to gRPC"), cure)];
        }
    };
    let own = env!("CARGO_PKG_VERSION");
    let info = asked(ServerServiceClient::new(wire).get_server_info(GetServerInfoRequest {}).await);
    let version = match info.map(|info| info.server.unwrap_or_default().version) {
        Ok(version) if version == own => Check::ok(Area::Server, "version", version),
        Ok(version) => Check::warning(
            Area::Server,
            "version",
            format!("{version}, and this is {own}: what is said here is what {own} would do"),
            "run the doctor of the build that serves, or finish the upgrade",
        ),
        Err(error) => Check::not(Area::Server, "version", format!("{error:#}: show a credential (CALLGATE_TOKEN)")),
    };
    vec![health, version]
}
