//! Process settings: flags and environment, read once. How calls are judged is the policy's business, never set here.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use http::HeaderValue;
use url::Url;

/// Where callgate serves without --listen.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7600";

/// Most threads that may be asked for.
const THREADS_MAX: u16 = 1_024;

/// How log lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Where to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A port of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Whose a Unix socket becomes: `user`, `user:group` or `:group`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// By name or number.
    pub user: Option<String>,
    /// By name or number.
    pub group: Option<String>,
}

/// What every command that logs takes.
#[derive(Debug, Clone, Args)]
pub struct LogConfig {
    /// How log lines are written, to standard error
    #[arg(long, value_enum, default_value_t, env = "CALLGATE_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// What is logged, in the syntax of tracing's EnvFilter: info, callgate=debug, …
    #[arg(long, value_name = "FILTER", env = "CALLGATE_LOG")]
    pub log: Option<String>,
    /// Send spans, metrics and log lines to this OpenTelemetry collector: http://HOST:PORT or https://HOST:PORT. By
    /// gRPC (commonly port 4317), or with OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf over HTTP (commonly port 4318). The
    /// standard's other OTEL_* variables are followed, too: see docs/telemetry.md#setting-it-up
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
}

/// Where the database is.
#[derive(Debug, Clone, Args)]
pub struct DatabaseConfig {
    /// A PostgreSQL server of your own, version 14 or newer; without it callgate runs a private one
    #[arg(long, value_name = "URL", env = "CALLGATE_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Where the private PostgreSQL keeps its data [default: callgate in the user's data home; /var/lib/callgate for
    /// root]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR", conflicts_with = "database_url")]
    pub data_dir: Option<PathBuf>,
    /// The folder of PostgreSQL's programs, if they are not on PATH or in a usual place
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN", conflicts_with = "database_url")]
    pub pg_bin: Option<PathBuf>,
}

/// TLS on every port.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsConfig {
    /// The server's certificate and those between it and its authority, in PEM; read again when it changes
    #[arg(long, value_name = "FILE", env = "CALLGATE_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM; read again when it changes
    #[arg(long, value_name = "FILE", env = "CALLGATE_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// The authorities of clients' certificates, in PEM; read again when it changes. Who shows no certificate needs
    /// another credential
    #[arg(long, value_name = "FILE", env = "CALLGATE_CLIENT_CA", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// Lists of what these authorities have revoked, in PEM, one of each; read again when it changes. Who is of an
    /// authority without a list, or whose list has ended, is not let in by a certificate
    #[arg(long, value_name = "FILE", env = "CALLGATE_CLIENT_CRL", requires = "client_ca")]
    pub client_crl: Option<PathBuf>,
    /// A proxy ends TLS, and nobody else can reach this server: serve other machines in the clear, and believe the
    /// proxy (x-forwarded-for) whom it asks for
    #[arg(long, env = "CALLGATE_INSECURE_BEHIND_PROXY")]
    pub insecure_behind_proxy: bool,
}

/// How much connections may take up.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits of connections")]
pub struct ConnectionConfig {
    /// Connections at a time, over all addresses; never more than the process may open files, with some left for the
    /// database
    #[arg(long, value_name = "N", default_value_t = 10000, env = "CALLGATE_CONNECTIONS_MAX", value_parser = from_1)]
    pub connections_max: u32,
    /// Connections at a time from one address; of IPv6 from one network of 64 bits. Raise it for a proxy
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        env = "CALLGATE_CONNECTIONS_PER_ADDRESS",
        value_parser = from_1
    )]
    pub connections_per_address: u32,
    /// An origin of pages in browsers that may ask, as https://console.example; may be given several times
    #[arg(long = "origin", value_name = "ORIGIN", env = "CALLGATE_ORIGINS")]
    #[arg(value_delimiter = ',', value_parser = origin)]
    pub origins: Vec<HeaderValue>,
    /// Requests at a time on one connection
    #[arg(long, value_name = "N", default_value_t = 200, env = "CALLGATE_STREAMS_MAX", value_parser = from_1)]
    pub streams_max: u32,
    /// Requests that a connection may take back before they are looked at
    #[arg(long, value_name = "N", default_value_t = 1024, env = "CALLGATE_RESETS_MAX", value_parser = from_1)]
    pub resets_max: u32,
    /// Largest head of a request, in bytes, from 8192
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "65536",
        env = "CALLGATE_HEADER_BYTES_MAX",
        value_parser = clap::value_parser!(u32).range(8_192..=1 << 20)
    )]
    pub header_bytes_max: u32,
    /// Largest frame of HTTP/2, in bytes, from 16384
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "16384",
        env = "CALLGATE_FRAME_BYTES_MAX",
        value_parser = clap::value_parser!(u32).range(16_384..(1 << 24))
    )]
    pub frame_bytes_max: u32,
    /// Longest time for TLS, for the first words after it, and for the head of a request over HTTP/1, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, env = "CALLGATE_HANDSHAKE_S", value_parser = from_1)]
    pub handshake_s: u32,
    /// A connection without any request open is ended in order after so many seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 900,
        env = "CALLGATE_CONNECTION_IDLE_S",
        value_parser = from_1
    )]
    pub connection_idle_s: u32,
    /// Every connection is ended in order after so many seconds, or up to a tenth sooner [default: 3600 where other
    /// machines can connect, else never]
    #[arg(long, value_name = "SECONDS", env = "CALLGATE_CONNECTION_AGE_S", value_parser = from_1)]
    pub connection_age_s: Option<u32>,
    /// What is open on a connection that was ended in order is cut off after so many seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 120,
        env = "CALLGATE_CONNECTION_GRACE_S",
        value_parser = from_1
    )]
    pub connection_grace_s: u32,
}

fn from_1(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("{text:?} is no number from 1 on"))
}

/// What `callgate serve` takes.
#[derive(Debug, Clone, Args)]
pub struct ServeConfig {
    /// Where to serve, more than once or with commas for several: HOST:PORT (port 0 takes a free one), or unix:PATH;
    /// what other machines can reach needs TLS, and lets in nobody without a credential
    #[arg(
        long,
        value_name = "HOST:PORT|unix:PATH",
        default_value = LISTEN_DEFAULT,
        env = "CALLGATE_LISTEN",
        value_delimiter = ',',
        value_parser = listen
    )]
    pub listen: Vec<Listen>,
    /// Where health, readiness and metrics are served besides, in the clear and without callgate's credentials, so that
    /// they are told while the database is away
    #[arg(long, value_name = "HOST:PORT", env = "CALLGATE_OPS_LISTEN")]
    pub ops_listen: Option<SocketAddr>,
    /// The token that is shown there for metrics, in a file
    #[arg(long, value_name = "FILE", env = "CALLGATE_OPS_TOKEN_FILE", requires = "ops_listen")]
    pub ops_token_file: Option<PathBuf>,
    /// Let other machines read metrics there without a token: where a network's own rules keep strangers out
    #[arg(long, env = "CALLGATE_OPS_OPEN", requires = "ops_listen", conflicts_with = "ops_token_file")]
    pub ops_open: bool,
    /// Who may use a Unix socket: its permissions, in octal
    #[arg(long, value_name = "MODE", default_value = "0660", env = "CALLGATE_SOCKET_MODE", value_parser = mode)]
    pub socket_mode: u32,
    /// Whose a Unix socket becomes: USER, USER:GROUP or :GROUP, by name or number [default: the process's own]
    #[arg(long, value_name = "USER:GROUP", env = "CALLGATE_SOCKET_OWNER", value_parser = owner)]
    pub socket_owner: Option<Owner>,
    /// How callers reach it.
    #[command(flatten)]
    pub tls: TlsConfig,
    /// What it may take up.
    #[command(flatten)]
    pub connections: ConnectionConfig,
    /// Who callers are by their certificates, and by tokens of issuers (JWT), in YAML
    #[arg(long, value_name = "FILE", env = "CALLGATE_AUTH")]
    pub auth: Option<PathBuf>,
    /// Keys of tenants, in YAML: arguments and results of tenants that it names are encrypted at rest; read again when
    /// it changes
    #[arg(long, value_name = "FILE", env = "CALLGATE_KEYS")]
    pub keys: Option<PathBuf>,
    /// The policy file, applied at start and whenever it changes (SIGHUP: at once); without it the stored active policy
    /// holds, or else nothing is known about any tool, and every limit is wide
    #[arg(long, value_name = "FILE", env = "CALLGATE_POLICY")]
    pub policy: Option<PathBuf>,
    /// How many threads answer calls, 1 to 1024 [default: one less than there are cores, for the database's sake]
    #[arg(
        long,
        value_name = "N",
        env = "CALLGATE_THREADS",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX))
    )]
    pub threads: Option<u16>,
    /// Who is told of questions to people as they are asked, in YAML: see docs/console.md#the-webhook
    #[arg(long, value_name = "FILE", env = "CALLGATE_APPROVALS_WEBHOOK")]
    pub approvals_webhook: Option<PathBuf>,
    /// Serve no console: calls alone, and what is asked over HTTP beside them
    #[arg(long, env = "CALLGATE_NO_CONSOLE")]
    pub no_console: bool,
    /// Where the database is.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// What is logged.
    #[command(flatten)]
    pub log: LogConfig,
}

/// Where to serve, from its text.
///
/// # Errors
/// What is wrong with it.
pub fn listen(text: &str) -> Result<Listen, String> {
    match text.strip_prefix("unix:") {
        // Both forms of gRPC's names: unix:PATH, and unix:///PATH.
        Some(path) => Ok(Listen::Unix(path.strip_prefix("//").unwrap_or(path).into())),
        None => address(text).map(Listen::Tcp),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is no permissions in octal, such as 0660"))
}

fn owner(text: &str) -> Result<Owner, String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    match (named(user), named(group)) {
        (None, None) => Err("it has to be USER, USER:GROUP or :GROUP".to_owned()),
        (user, group) => Ok(Owner { user, group }),
    }
}

/// The address of `HOST:PORT`; of a name that has several, one of IPv4, since that is where clients look by default.
fn address(text: &str) -> Result<SocketAddr, String> {
    let known = text.to_socket_addrs().map_err(|error| match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            format!("the host {host:?} cannot be resolved: {error}")
        }
        _ => "it has to be HOST:PORT, as in 127.0.0.1:7600, localhost:7600 or [::1]:7600, or unix:PATH".to_owned(),
    })?;
    let known: Vec<SocketAddr> = known.collect();
    let of_v4 = known.iter().find(|address| address.is_ipv4());
    of_v4.or(known.first()).copied().ok_or_else(|| format!("{text:?} has no address"))
}

/// An origin as browsers send it: scheme, host and port.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let problem =
        || format!("{text:?} is no origin: it has a scheme, a host and perhaps a port, as https://console.example");
    let url = Url::parse(text).map_err(|_| problem())?;
    let origin = url.origin();
    let is_origin = origin.is_tuple() && origin.ascii_serialization() == text.trim_end_matches('/');
    if !is_origin {
        return Err(problem());
    }
    HeaderValue::from_str(text.trim_end_matches('/')).map_err(|_| problem())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_name_its_host() {
        for text in ["localhost:7600", "127.0.0.1:7600", "[::1]:7600"] {
            let address = address(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(address.ip().is_loopback() && address.port() == 7600, "{text}: {address}");
        }
        assert!(address("localhost:0").is_ok_and(|address| address.is_ipv4()), "where clients look by default");
    }

    #[test]
    fn a_socket_is_named_by_its_path_and_its_users_by_mode_and_owner() {
        for (text, path) in [("unix:/run/s", "/run/s"), ("unix:///run/s", "/run/s"), ("unix:s", "s")] {
            assert_eq!(listen(text), Ok(Listen::Unix(path.into())));
        }
        assert_eq!((mode("0660"), mode("600")), (Ok(0o660), Ok(0o600)));
        for text in ["", "rw", "0o660", "0680", "1777"] {
            assert!(mode(text).is_err(), "{text}");
        }
        let own = |user: &str, group: &str| {
            let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
            Ok(Owner { user: named(user), group: named(group) })
        };
        for (text, owned) in [("a", own("a", "")), ("a:b", own("a", "b")), (":b", own("", "b")), ("a:", own("a", ""))] {
            assert_eq!(owner(text), owned, "{text}");
        }
        assert!(owner("").is_err() && owner(":").is_err());
    }

    #[test]
    fn an_origin_is_what_browsers_send() {
        for (text, sent) in
            [("https://a.example", "https://a.example"), ("http://localhost:5173/", "http://localhost:5173")]
        {
            assert_eq!(origin(text).expect(text), sent);
        }
        for text in ["", "*", "null", "a.example", "https://a.example/x", "file:///x", "https://a.example:443"] {
            assert!(origin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_names_no_address_is_told_in_words() {
        for text in ["localhost", "7600", ":7600", "localhost:", "localhost:70000", ""] {
            let error = address(text).expect_err(text);
            assert!(error.starts_with("it has to be HOST:PORT"), "{text}: {error}");
        }
        let error = address("no-such-host.invalid:7600").expect_err("no host");
        assert!(error.starts_with("the host \"no-such-host.invalid\" cannot be resolved: "), "{error}");
    }
}
