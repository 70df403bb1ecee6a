//! Process settings: flags and environment, read once. Parameters of decisions are in the policy, never here.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    sync::Arc,
};

use clap::{Args, ValueEnum};
use http::HeaderValue;
use url::Url;

/// Where callgate serves without --listen.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7600";

/// Maximum of --threads.
const THREADS_MAX: u16 = 1_024;

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// An address to serve on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A port of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Owner of a Unix socket: `user`, `user:group` or `:group`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketOwner {
    /// By name or number.
    pub user: Option<String>,
    /// By name or number.
    pub group: Option<String>,
}

/// Arguments of every command that logs.
#[derive(Debug, Clone, Args)]
pub struct LogConfig {
    /// Format of the log on standard error
    #[arg(long, value_enum, default_value_t, env = "CALLGATE_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// Filter of the log, in the syntax of tracing's EnvFilter: info, callgate=debug, …
    #[arg(long, value_name = "FILTER", env = "CALLGATE_LOG")]
    pub log: Option<String>,
    /// OpenTelemetry collector for spans, metrics and log lines: http://HOST:PORT or https://HOST:PORT. Over gRPC
    /// (commonly port 4317), or with OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf over HTTP (commonly port 4318). Other
    /// standard OTEL_* variables work too: docs/telemetry.md#setting-it-up
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
}

/// Where the database is.
#[derive(Debug, Clone, Args)]
pub struct DatabaseConfig {
    /// URL of your own PostgreSQL server, version 14 or newer [default: a private PostgreSQL]
    #[arg(long, value_name = "URL", env = "CALLGATE_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Data directory of the private PostgreSQL [default: callgate in the user's data home; /var/lib/callgate for root]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR", conflicts_with = "database_url")]
    pub data_dir: Option<PathBuf>,
    /// Directory of PostgreSQL's programs [default: PATH, then the usual directories]
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN", conflicts_with = "database_url")]
    pub pg_bin: Option<PathBuf>,
}

/// TLS on every port.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsConfig {
    /// Server certificate and its intermediate certificates, in PEM; reloaded when it changes
    #[arg(long, value_name = "FILE", env = "CALLGATE_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM; reloaded when it changes
    #[arg(long, value_name = "FILE", env = "CALLGATE_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Authorities of client certificates, in PEM; reloaded when it changes. A caller without a certificate needs
    /// another credential
    #[arg(long, value_name = "FILE", env = "CALLGATE_CLIENT_CA", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// Revocation lists (CRL) of these authorities, in PEM, one of each; reloaded when it changes. Certificates that
    /// no current list covers are rejected
    #[arg(long, value_name = "FILE", env = "CALLGATE_CLIENT_CRL", requires = "client_ca")]
    pub client_crl: Option<PathBuf>,
    /// Serve other machines without TLS, and trust x-forwarded-for: only behind a proxy that terminates TLS, where
    /// nothing else can reach this server
    #[arg(long, env = "CALLGATE_INSECURE_BEHIND_PROXY")]
    pub insecure_behind_proxy: bool,
}

/// Limits of connections.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits of connections")]
pub struct ConnectionConfig {
    /// Maximum number of connections; also bounded by the process's open files, less some for the database
    #[arg(long, value_name = "N", default_value_t = 10000, env = "CALLGATE_CONNECTIONS_MAX", value_parser = from_1)]
    pub connections_max: u32,
    /// Maximum number of connections from one address, for IPv6 from one /64 network. Raise it for a proxy
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        env = "CALLGATE_CONNECTIONS_PER_ADDRESS",
        value_parser = from_1
    )]
    pub connections_per_address: u32,
    /// Allowed origin of browser pages (CORS), such as https://console.example; repeatable
    #[arg(long = "origin", value_name = "ORIGIN", env = "CALLGATE_ORIGINS")]
    #[arg(value_delimiter = ',', value_parser = origin)]
    pub origins: Vec<HeaderValue>,
    /// Maximum number of concurrent requests on one connection
    #[arg(long, value_name = "N", default_value_t = 200, env = "CALLGATE_STREAMS_MAX", value_parser = from_1)]
    pub streams_max: u32,
    /// Maximum number of requests that a connection may reset before they are read
    #[arg(long, value_name = "N", default_value_t = 1024, env = "CALLGATE_RESETS_MAX", value_parser = from_1)]
    pub resets_max: u32,
    /// Maximum size of a request's headers in bytes, from 8192
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "65536",
        env = "CALLGATE_HEADER_BYTES_MAX",
        value_parser = clap::value_parser!(u32).range(8_192..=1 << 20)
    )]
    pub header_bytes_max: u32,
    /// Maximum size of an HTTP/2 frame in bytes, from 16384
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "16384",
        env = "CALLGATE_FRAME_BYTES_MAX",
        value_parser = clap::value_parser!(u32).range(16_384..(1 << 24))
    )]
    pub frame_bytes_max: u32,
    /// Timeout for the TLS handshake, for the first bytes after it, and for the headers of HTTP/1, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, env = "CALLGATE_HANDSHAKE_S", value_parser = from_1)]
    pub handshake_s: u32,
    /// Seconds until a connection without open requests is closed gracefully
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 900,
        env = "CALLGATE_CONNECTION_IDLE_S",
        value_parser = from_1
    )]
    pub connection_idle_s: u32,
    /// Seconds until any connection is closed gracefully, less up to a tenth [default: 3600 where other machines can
    /// connect, else never]
    #[arg(long, value_name = "SECONDS", env = "CALLGATE_CONNECTION_AGE_S", value_parser = from_1)]
    pub connection_age_s: Option<u32>,
    /// Seconds until the open requests of a gracefully closed connection are aborted
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
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("{text:?} is not a number of 1 or more"))
}

/// Arguments of `callgate serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeConfig {
    /// Address to serve on, repeatable or comma-separated: HOST:PORT (port 0: a free one) or unix:PATH. An address that
    /// other machines can reach needs TLS, and requires a credential
    #[arg(
        long,
        value_name = "HOST:PORT|unix:PATH",
        default_value = LISTEN_DEFAULT,
        env = "CALLGATE_LISTEN",
        value_delimiter = ',',
        value_parser = listen
    )]
    pub listen: Vec<Listen>,
    /// Extra address for health, readiness and metrics, without TLS and callgate's credentials, so that it also works
    /// while the database is unavailable
    #[arg(long, value_name = "HOST:PORT", env = "CALLGATE_OPS_LISTEN")]
    pub ops_listen: Option<SocketAddr>,
    /// File of the token that metrics require there
    #[arg(long, value_name = "FILE", env = "CALLGATE_OPS_TOKEN_FILE", requires = "ops_listen")]
    pub ops_token_file: Option<PathBuf>,
    /// Serve metrics to other machines there without a token: only on a network with its own access rules
    #[arg(long, env = "CALLGATE_OPS_OPEN", requires = "ops_listen", conflicts_with = "ops_token_file")]
    pub ops_open: bool,
    /// Permissions of a Unix socket, in octal
    #[arg(long, value_name = "MODE", default_value = "0660", env = "CALLGATE_SOCKET_MODE", value_parser = mode)]
    pub socket_mode: u32,
    /// Owner of a Unix socket: USER, USER:GROUP or :GROUP, by name or number [default: the process's own]
    #[arg(long, value_name = "USER:GROUP", env = "CALLGATE_SOCKET_OWNER", value_parser = owner)]
    pub socket_owner: Option<SocketOwner>,
    /// TLS of its addresses.
    #[command(flatten)]
    pub tls: TlsConfig,
    /// Limits of its connections.
    #[command(flatten)]
    pub connections: ConnectionConfig,
    /// File that maps client certificates and issuers' tokens (JWT) to callers, in YAML
    #[arg(long, value_name = "FILE", env = "CALLGATE_AUTH")]
    pub auth: Option<PathBuf>,
    /// File of tenants' keys, in YAML: arguments and results of these tenants are encrypted at rest; reloaded when it
    /// changes
    #[arg(long, value_name = "FILE", env = "CALLGATE_KEYS")]
    pub keys: Option<PathBuf>,
    /// Policy file, applied at start and whenever it changes (SIGHUP: at once) [default: the stored active policy, else
    /// the built-in one, which declares no tools and has wide limits]
    #[arg(long, value_name = "FILE", env = "CALLGATE_POLICY")]
    pub policy: Option<PathBuf>,
    /// Threads that answer calls, 1 to 1024 [default: one less than cores, which leaves one for the database]
    #[arg(
        long,
        value_name = "N",
        env = "CALLGATE_THREADS",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX))
    )]
    pub threads: Option<u16>,
    /// File of the destinations that are notified of approval requests, halts, budgets and open circuit breakers, in
    /// YAML: docs/notifications.md#destinations
    #[arg(long, value_name = "FILE", env = "CALLGATE_NOTIFICATIONS")]
    pub notifications: Option<PathBuf>,
    /// Replaced by --notifications
    #[arg(long, value_name = "FILE", env = "CALLGATE_APPROVALS_WEBHOOK", hide = true)]
    pub approvals_webhook: Option<PathBuf>,
    /// Address of a trace in your tracing backend, for links in the console, such as
    /// https://traces.example/trace/{trace_id}
    #[arg(long, value_name = "TEMPLATE", env = "CALLGATE_TRACE_URL", value_parser = trace_url)]
    pub trace_url: Option<Arc<str>>,
    /// Directory of backups (`callgate backup --in DIR`): the age of the newest becomes a metric
    #[arg(long, value_name = "DIR", env = "CALLGATE_BACKUPS")]
    pub backups: Option<PathBuf>,
    /// Store everything in memory, without PostgreSQL, for trials and unit tests: it is lost when the process ends.
    /// Methods that need a database answer NEEDS_DATABASE: docs/operations.md#in-memory
    #[arg(
        long,
        env = "CALLGATE_MEMORY",
        conflicts_with_all = ["database_url", "data_dir", "pg_bin", "keys", "notifications", "backups"]
    )]
    pub memory: bool,
    /// Turn the console off
    #[arg(long, env = "CALLGATE_NO_CONSOLE")]
    pub no_console: bool,
    /// Its database.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Its log.
    #[command(flatten)]
    pub log: LogConfig,
}

/// Parses an address to serve on.
///
/// # Errors
/// The problem of the text.
pub fn listen(text: &str) -> Result<Listen, String> {
    match text.strip_prefix("unix:") {
        // Both forms of gRPC's names: unix:PATH, and unix:///PATH.
        Some(path) => Ok(Listen::Unix(path.strip_prefix("//").unwrap_or(path).into())),
        None => address(text).map(Listen::Tcp),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is not an octal mode such as 0660"))
}

fn owner(text: &str) -> Result<SocketOwner, String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    match (named(user), named(group)) {
        (None, None) => Err("expected USER, USER:GROUP or :GROUP".to_owned()),
        (user, group) => Ok(SocketOwner { user, group }),
    }
}

/// The address of `HOST:PORT`; of a name that has several, one of IPv4, since that is where clients look by default.
fn address(text: &str) -> Result<SocketAddr, String> {
    let known = text.to_socket_addrs().map_err(|error| match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            format!("cannot resolve the host {host:?}: {error}")
        }
        _ => "expected HOST:PORT, as in 127.0.0.1:7600, localhost:7600 or [::1]:7600, or unix:PATH".to_owned(),
    })?;
    let known: Vec<SocketAddr> = known.collect();
    let of_v4 = known.iter().find(|address| address.is_ipv4());
    of_v4.or(known.first()).copied().ok_or_else(|| format!("{text:?} has no address"))
}

/// An origin as browsers send it: scheme, host and port.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let problem = || {
        format!(
            "{text:?} is not an origin: expected a scheme, a host and an optional port, as in https://console.example"
        )
    };
    let url = Url::parse(text).map_err(|_| problem())?;
    let origin = url.origin();
    let is_origin = origin.is_tuple() && origin.ascii_serialization() == text.trim_end_matches('/');
    if !is_origin {
        return Err(problem());
    }
    HeaderValue::from_str(text.trim_end_matches('/')).map_err(|_| problem())
}

/// The template of a trace's address: of a web page, with the trace's id in it.
fn trace_url(text: &str) -> Result<Arc<str>, String> {
    let is_web = |url: Url| matches!(url.scheme(), "https" | "http");
    match Url::parse(text).is_ok_and(is_web) && text.contains("{trace_id}") {
        true => Ok(text.into()),
        false => Err(format!("{text:?} is no template such as https://traces.example/trace/{{trace_id}}")),
    }
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
            Ok(SocketOwner { user: named(user), group: named(group) })
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
    fn trace_url_is_a_web_address_that_names_the_trace() {
        assert!(trace_url("https://t.example/trace/{trace_id}?org=1").is_ok());
        for text in ["", "/trace/{trace_id}", "javascript:alert('{trace_id}')", "https://t.example/trace/"] {
            assert!(trace_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_address_is_reported() {
        for text in ["localhost", "7600", ":7600", "localhost:", "localhost:70000", ""] {
            let error = address(text).expect_err(text);
            assert!(error.starts_with("expected HOST:PORT"), "{text}: {error}");
        }
        let error = address("no-such-host.invalid:7600").expect_err("no host");
        assert!(error.starts_with("cannot resolve the host \"no-such-host.invalid\": "), "{error}");
    }
}
