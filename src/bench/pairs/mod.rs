//! `callgate bench`: cost and throughput of pairs (Evaluate and Record, both durable), with yardsticks in the same run.
//! It uses servers through the contract like agents; resource usage of processes and database is read from /proc and
//! PostgreSQL.

mod agent;
mod cases;
mod certificate;
mod child;
pub(crate) mod collector;
mod cpu;
mod disk;
mod drive;
mod json;
mod keys;
mod link;
mod load;
mod probe;
mod read;
mod report;
mod run;
mod server;
mod stored;
mod stream;
mod sustained;
mod tally;
mod telemetry;
mod tokens;
pub(crate) mod yardstick;

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::json;

use self::{
    link::Transport,
    read::{OfferedRate, count, crowd, rate, share, time},
    run::RoundPlan,
    server::Servers,
    telemetry::TelemetryLevel,
    yardstick::Yardstick,
};
use callgate_client::{
    credential::Credential,
    remote::{CredentialArgs, Remote},
};

/// What `callgate bench` takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// A running server to measure; without it, one is started with a private database in a temporary folder. What a
    /// bench stores stays there: not a server of real agents
    #[arg(long, value_name = "URL", conflicts_with_all = ["context", "against", "stored", "grown", "policy"])]
    server: Option<String>,
    /// That server by its name in the file of contexts, with its credential
    #[arg(long, value_name = "NAME", conflicts_with_all = ["against", "stored", "grown", "policy"])]
    context: Option<String>,
    /// The database of that server, or for the one that is started; it tells the write-ahead log
    #[arg(long, value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    #[command(flatten)]
    shown: CredentialArgs,
    /// Let the server that is started want credentials, and show it a token with each call
    #[arg(long, conflicts_with_all = ["server", "context"])]
    with_token: bool,
    /// So many tenants of the server that is started, each with a token; connections take turns
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64),
          conflicts_with_all = ["server", "context", "preset"])]
    tenants: Option<u16>,
    /// Encrypt what the server that is started stores, with keys that are made for it, beside one that does not
    #[arg(long, conflicts_with_all = ["server", "context", "stored", "database_url"])]
    encrypted: bool,
    /// Servers that send telemetry to a collector of the bench's, which drops it, in turns with one that sends none
    #[arg(long, value_enum, value_name = "HOW", value_delimiter = ',', num_args = 0..=1,
          default_missing_values = ["default", "grpc"],
          conflicts_with_all = ["server", "context", "preset", "stored", "grown", "against", "database_url"])]
    telemetry: Vec<TelemetryLevel>,
    /// The folder of PostgreSQL's programs
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN")]
    pg_bin: Option<PathBuf>,
    /// A set of cases instead of one
    #[arg(long, value_enum, conflicts_with_all = ["load", "rate", "duration", "stored", "grown", "against"])]
    preset: Option<Preset>,
    /// How calls travel to callgate; several: beside each other, the first one being the one that others are held
    /// against. Yardsticks always take a call of its own each, over TCP
    #[arg(long, value_enum, value_delimiter = ',', default_value = "unary")]
    transport: Vec<Transport>,
    /// Connections, and agents on each that ask at the same time; several: 1x1,8x8,8x64
    #[arg(long, value_name = "CxN", value_delimiter = ',', default_value = "8x8", value_parser = crowd)]
    load: Vec<(usize, usize)>,
    /// Pairs a second that are intended, as a number or a share of the peak: 900 or 70%. Times then count from when a
    /// call should have begun. Without it each agent goes on as soon as it is answered
    #[arg(long, value_name = "N|P%", value_parser = rate)]
    rate: Option<OfferedRate>,
    /// One long run instead of rounds, told minute by minute
    #[arg(long, value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,
    /// Rounds of each, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// How long a round is
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = time)]
    round: Duration,
    /// How long agents work before each round
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    warm_up: Duration,
    /// What it is held against, in the same run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "echo,tx,cte")]
    yardsticks: Vec<YardstickChoice>,
    /// Another build of callgate, as one more server in the same run
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Sessions in use at the same time
    #[arg(long, value_name = "N", default_value = "1k", value_parser = count)]
    sessions: u64,
    /// Calls after which a session is replaced by a new one
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    calls_per_session: u32,
    /// Different agents, by name
    #[arg(long, value_name = "N", default_value = "100", value_parser = count)]
    agents: u64,
    /// Share of calls that report what they cost
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    costs: f64,
    /// Share of calls of a tool that the policy declares a write
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    writes: f64,
    /// Share of calls that fail
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    failures: f64,
    /// Share of calls that repeat the session's call before; what is not let through is no pair
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    duplicates: f64,
    /// Size of the arguments at least
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    argument_bytes: u32,
    /// Size of the results at least
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    result_bytes: u32,
    /// Calls that are in the database before, beside the same load with 10k of them
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "database_url")]
    stored: Option<u64>,
    /// Calls that each session has made before, beside the same load with sessions of ten
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(11..), conflicts_with = "stored")]
    grown: Option<u32>,
    /// The policy of the server that is started, instead of the default one
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Also write everything, round by round, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A set of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// 1x1, 8x1, 8x8, 8x64 and 8x512 beside the yardsticks; then new sessions, reported costs, declared writes and
    /// failures, each beside plain pairs
    Show,
}

impl BenchArgs {
    /// The named server with its credential.
    fn running(&self) -> anyhow::Result<Option<(String, Credential)>> {
        let remote = Remote::of(self.server.clone(), self.context.clone(), self.shown.clone());
        if !remote.is_named() {
            return Ok(None);
        }
        Ok(Some((remote.server()?.to_owned(), remote.credential()?.clone())))
    }
}

/// A yardstick, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum YardstickChoice {
    /// The same messages through an empty handler
    Echo,
    /// One transaction of five round trips a call, sixteen connections, no rules
    Tx,
    /// One statement a call, sixteen connections, no rules
    Cte,
    /// Nothing
    None,
}

impl YardstickChoice {
    fn yardstick(self) -> Option<Yardstick> {
        match self {
            Self::Echo => Some(Yardstick::Echo),
            Self::Tx => Some(Yardstick::Tx),
            Self::Cte => Some(Yardstick::Cte),
            Self::None => None,
        }
    }
}

/// Runs the benchmark. Started processes are stopped, also after an interruption or failure.
pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<()> {
    let mut servers = Servers::new(args.pg_bin.clone())?;
    let measured = tokio::select! {
        measured = measure(&args, &mut servers) => measured,
        () = callgate_client::signal::stop() => Err(anyhow::anyhow!("interrupted: nothing more is measured")),
    };
    let stopped = servers.stop().await;
    measured.and(stopped)
}

async fn measure(args: &BenchArgs, servers: &mut Servers) -> anyhow::Result<()> {
    let plan = RoundPlan { rounds: usize::from(args.rounds), round: args.round, warm_up: args.warm_up };
    let cases = cases::of(args)?;
    if !cpu::is_known() {
        outln!("There is no /proc here: processor times cannot be told.");
    }
    let mut written = Vec::new();
    for case in &cases {
        if let Some(duration) = args.duration {
            let outcome = sustained::run(case, servers, plan, duration).await?;
            written.push(json!(outcome));
        } else {
            let outcome = case.run(servers, plan).await?;
            outln!("{}", report::table(&outcome));
            written.push(json!(outcome));
        }
    }
    for line in said(servers, &cases) {
        outln!("{line}");
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&json!({"cases": written, "logs": logs(servers)}))? + "\n";
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Policies of the cases, and problems in the servers' logs.
fn said(servers: &Servers, cases: &[run::Case]) -> Vec<String> {
    let mut lines = cases::policies(cases);
    for (name, (count, first)) in logs(servers) {
        lines.push(format!("log of {name}: {count} warnings and errors"));
        lines.extend(first.into_iter().map(|line| format!("  {line}")));
    }
    lines
}

fn logs(servers: &Servers) -> Vec<(String, (usize, Vec<String>))> {
    let of = |server: &server::BenchServer| Some((server.which.described(), server.trouble()?));
    servers.all().iter().filter_map(of).collect()
}
