//! `callgate health`: health check of a server, for containers without a shell, units, and start scripts.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tokio::time::{Instant, sleep, timeout};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use callgate_client::{
    credential::{AuthenticatedChannel, Bearer, Credential},
    remote::{Remote, into_response},
};
use callgate_server::config::{LISTEN_DEFAULT, Listen, listen};

/// Poll interval.
const EVERY: Duration = Duration::from_millis(200);

/// Arguments of `callgate health`.
#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    /// Accept any answer, also from a server without its database: for a liveness probe
    #[arg(long)]
    live: bool,
    /// Seconds to keep asking until the server is ready
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u32,
    /// Seconds to wait for one answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    #[command(flatten)]
    remote: Remote,
}

impl HealthArgs {
    /// The named server; otherwise the one that this environment configures, as in its container or unit.
    fn find_server(&self) -> anyhow::Result<Option<String>> {
        match std::env::var("CALLGATE_LISTEN") {
            Ok(listens) if !self.remote.is_named() => local_address(&listens).map(Some),
            _ => Ok(None),
        }
    }

    async fn connect(&self, own: Option<&str>) -> anyhow::Result<AuthenticatedChannel> {
        match own {
            Some(url) => Credential::default().connect(url, Bearer::default(), "").await,
            None => self.remote.connect().await,
        }
    }
}

/// Runs `callgate health`: an error unless the server is healthy.
pub(super) async fn run(args: HealthArgs) -> anyhow::Result<()> {
    let own = args.find_server()?;
    let until = Instant::now() + Duration::from_secs(args.wait.into());
    loop {
        match check_health(&args, own.as_deref()).await {
            Ok(told) => {
                outln!("{told}");
                return Ok(());
            }
            Err(error) if Instant::now() + EVERY >= until => return Err(error),
            Err(_) => sleep(EVERY).await,
        }
    }
}

async fn check_health(args: &HealthArgs, own: Option<&str>) -> anyhow::Result<String> {
    let url = own.map_or_else(|| args.remote.server(), Ok)?;
    let limit = Duration::from_secs(args.timeout.into());
    let ask = async {
        let mut client = HealthClient::new(args.connect(own).await?);
        into_response(client.check(HealthCheckRequest::default()).await)
    };
    let Ok(answer) = timeout(limit, ask).await else {
        bail!("{url} did not answer within {} s", args.timeout);
    };
    match answer?.status() {
        ServingStatus::Serving => Ok(format!("{url} is ready")),
        _ if args.live => Ok(format!("{url} answers, but is not ready")),
        _ => bail!("{url} answers, but is not ready: its database is unavailable, or it is shutting down"),
    }
}

/// The local address of such a server: its Unix socket if it has one, which needs no certificate.
fn local_address(listens: &str) -> anyhow::Result<String> {
    let listens = if listens.trim().is_empty() { LISTEN_DEFAULT } else { listens };
    let all =
        listens.split(',').map(|text| listen(text.trim()).map_err(|error| anyhow::anyhow!("CALLGATE_LISTEN: {error}")));
    let all = all.collect::<anyhow::Result<Vec<Listen>>>()?;
    let socket = all.iter().find_map(|listen| match listen {
        Listen::Unix(path) => Some(format!("unix:{}", path.display())),
        Listen::Tcp(_) => None,
    });
    let port = all.iter().find_map(|listen| match listen {
        Listen::Tcp(address) if address.ip().is_unspecified() => Some(match address.is_ipv4() {
            true => format!("http://127.0.0.1:{}", address.port()),
            false => format!("http://[::1]:{}", address.port()),
        }),
        Listen::Tcp(address) => Some(format!("http://{address}")),
        Listen::Unix(_) => None,
    });
    socket.or(port).ok_or_else(|| anyhow::anyhow!("CALLGATE_LISTEN has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_where_it_listens() {
        for (listens, url) in [
            ("", "http://127.0.0.1:7600"),
            ("127.0.0.1:7601", "http://127.0.0.1:7601"),
            ("0.0.0.0:7600", "http://127.0.0.1:7600"),
            ("[::]:7600", "http://[::1]:7600"),
            ("0.0.0.0:7600, unix:/run/callgate/socket", "unix:/run/callgate/socket"),
        ] {
            assert_eq!(local_address(listens).expect(listens), url);
        }
        assert!(local_address("nowhere").is_err_and(|error| error.to_string().starts_with("CALLGATE_LISTEN: ")));
    }
}
