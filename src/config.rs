//! Process settings: flags and environment, read once. How calls are judged is the policy's business, never set here.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum};

/// Where callgate serves when nothing else is said.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7600";

/// How log lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
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
    /// Send traces and metrics to this OpenTelemetry collector, by gRPC: http://HOST:PORT or https://HOST:PORT
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
    /// The folder of PostgreSQL's programs, when it is not found by itself
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN", conflicts_with = "database_url")]
    pub pg_bin: Option<PathBuf>,
}

/// What `callgate serve` takes.
#[derive(Debug, Clone, Args)]
pub struct ServeConfig {
    /// The address to serve on: loopback only, since callers carry no credentials yet; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = LISTEN_DEFAULT, env = "CALLGATE_LISTEN")]
    pub listen: SocketAddr,
    /// The policy file, applied at start and whenever it changes (SIGHUP: at once); without it the stored active policy
    /// holds, or else nothing is known about any tool, and every limit is wide
    #[arg(long, value_name = "FILE", env = "CALLGATE_POLICY")]
    pub policy: Option<PathBuf>,
    /// Where the database is.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// What is logged.
    #[command(flatten)]
    pub log: LogConfig,
}
