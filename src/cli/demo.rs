//! `callgate demo`: a recorded session over gRPC, call by call, and then what it might have run into.
//!
//! The session (`demo/session.jsonl`) is task 13, trial 0 of sierra-research/tau-bench at 59a200c6,
//! historical_trajectories/gpt-4o-airline.json (MIT): a real agent that repeats a call which cannot succeed. The scenes
//! after it are staged, and say so.

mod client;
mod fleet;
mod show;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use self::{
    client::{Client, Outcome},
    show::Show,
};
use super::plane::Plane;
use crate::{
    config::DatabaseConfig,
    grpc::{
        time::millis,
        v1::{Decision, RecordResponse, Verdict},
    },
    policy::Policy,
    telemetry::Metrics,
};

/// What `callgate demo` takes.
#[derive(Debug, Clone, Args)]
pub(super) struct DemoArgs {
    /// A running server to play against; without it one is started in a temporary directory
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Pause before each call, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 150)]
    pace_ms: u64,
    /// The folder of PostgreSQL's programs, for a server of the demo's own
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN", conflicts_with = "server")]
    pg_bin: Option<std::path::PathBuf>,
}

#[derive(Debug, Deserialize)]
struct RecordedCall {
    tool: String,
    args: Value,
    result: String,
    is_error: bool,
}

/// Plays the demo.
pub(super) async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let Some(url) = &args.server else {
        return on_own_server(&args).await;
    };
    play(url, args.pace_ms).await
}

async fn on_own_server(args: &DemoArgs) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("callgate-demo-").tempdir().context("no temporary directory")?;
    open_to_all(folder.path())?;
    outln!("Starting a server of the demo's own, with its database in {} …", folder.path().display());
    let database =
        DatabaseConfig { database_url: None, data_dir: Some(folder.path().join("data")), pg_bin: args.pg_bin.clone() };
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let plane = Plane::start(listen, &database, Arc::new(Policy::default()), None, Metrics::none()).await?;
    let url = format!("http://{}", plane.address);
    // Ctrl-C must not leave a server behind: the demo ends, and what it started is stopped.
    let played = tokio::select! {
        played = play(&url, args.pace_ms) => played,
        () = super::signal::stop() => Ok(()),
    };
    plane.stop().await?;
    played
}

/// As root the database runs as another user, who has to be able to pass.
fn open_to_all(folder: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
        .context("cannot open the temporary directory")
}

async fn play(url: &str, pace_ms: u64) -> anyhow::Result<()> {
    let session = format!("demo-{}", uuid::Uuid::now_v7());
    let client = Client::connect(url, &session).await?;
    let mut stage = Stage { client, show: Show, pace: Duration::from_millis(pace_ms), said: 0 };
    stage.recorded_session().await?;
    stage.the_same_search_again().await?;
    stage.a_timeout().await?;
    stage.rate_limits().await?;
    stage.what_a_fleet_learns().await?;
    stage.money().await?;
    stage.memory(&session).await
}

/// The client, and the screen.
#[derive(Debug)]
struct Stage {
    client: Client,
    show: Show,
    pace: Duration,
    said: u32,
}

impl Stage {
    async fn recorded_session(&mut self) -> anyhow::Result<()> {
        self.show.title("A recorded session: gpt-4o changes a flight (tau-bench airline, task 13)");
        self.client.run("recorded");
        for line in include_str!("demo/session.jsonl").lines() {
            let call: RecordedCall = serde_json::from_str(line).context("the recorded session cannot be read")?;
            let outcome = if call.is_error { Outcome::error(&call.result) } else { Outcome::success(&call.result) };
            self.call(&call.tool, &call.args, outcome).await?;
        }
        Ok(())
    }

    async fn the_same_search_again(&mut self) -> anyhow::Result<()> {
        self.show.title("Staged: the agent cannot believe an empty answer, and searches again and again");
        self.client.run("insisting");
        let query = json!({"origin": "LAX", "destination": "ORD", "date": "2024-05-13"});
        for _ in 0..5 {
            self.call("search_direct_flight", &query, Outcome::success("[]")).await?;
        }
        let other = json!({"origin": "LAX", "destination": "DFW", "date": "2024-05-13"});
        self.call("search_direct_flight", &other, Outcome::success("[]")).await.map(drop)
    }

    async fn a_timeout(&mut self) -> anyhow::Result<()> {
        self.show.title("Staged: the provider times out, and is back a second later");
        self.client.run("timeout");
        let query = json!({"reservation_id": "XEWRD9", "fields": ["flights", "payment"]});
        self.call("get_reservation_details", &query, Outcome::failure(504, "504 Gateway Timeout")).await?;
        self.call_until_allowed("get_reservation_details", &query, Outcome::success("{\"flights\": 2}")).await.map(drop)
    }

    async fn rate_limits(&mut self) -> anyhow::Result<()> {
        self.show.title("Staged: four rate limits in a row; the fourth answer is final");
        self.client.run("rate-limited");
        let query = json!({"airport": "ATL"});
        for _ in 0..4 {
            let limited = Outcome::failure(429, "429 Too Many Requests");
            self.call_until_allowed("get_weather", &query, limited).await?;
        }
        self.call("get_weather", &query, Outcome::success("sunny")).await.map(drop)
    }

    async fn money(&mut self) -> anyhow::Result<()> {
        self.show.title("Staged: a call that costs too much, and a model that has burnt its budget");
        self.client.run("money");
        self.client.cost_estimate_micros = Some(12_000_000);
        self.call("generate_report", &json!({"pages": 4000}), Outcome::success("done")).await?;
        self.client.cost_estimate_micros = None;
        self.client.used_cost_micros = 10_000_000;
        self.call("list_all_airports", &json!({}), Outcome::success("[]")).await?;
        self.client.used_cost_micros = 0;
        self.call("list_all_airports", &json!({"page": 2}), Outcome::success("[]")).await.map(drop)
    }

    async fn memory(&mut self, session: &str) -> anyhow::Result<()> {
        self.show.title("After a compaction: GetSessionState gives the model its memory back");
        let state = self.client.state().await?;
        self.show.memory(&state.summary_for_model);
        self.show.end(session);
        Ok(())
    }

    async fn what_a_fleet_learns(&mut self) -> anyhow::Result<()> {
        self.show.title("Staged: a new API that never heals. A fleet retries as told; who comes next is told not to");
        self.client.run("learned");
        // A tool that no earlier demo has taught the server about.
        let tool = format!("get_quote_{}", &uuid::Uuid::now_v7().simple().to_string()[26..]);
        let broken = Outcome::failure(500, "500 Internal Server Error");
        self.call(&tool, &json!({"item": 0}), broken.clone()).await?;
        self.show.note(&format!("{} agents call it, fail, wait, retry, and fail again", fleet::AGENTS));
        fleet::retry_in_vain(&self.client, &tool, &broken).await?;
        for item in 1..4 {
            self.said += 1;
            let call_id = format!("call-{}", self.said);
            let args = json!({"item": item});
            let verdict = self.client.evaluate(&call_id, &tool, &args).await?;
            self.show.verdict(&tool, &args, &verdict);
            let recorded = self.client.record(&call_id, broken.clone()).await?;
            self.show.recorded(&recorded);
            // One suppressed retry in twenty is made all the same, to learn.
            if recorded.advice.is_none_or(|advice| !advice.probe) {
                break;
            }
        }
        Ok(())
    }

    /// Asks, executes if it may, and records.
    async fn call(&mut self, tool: &str, args: &Value, outcome: Outcome) -> anyhow::Result<Verdict> {
        tokio::time::sleep(self.pace).await;
        self.said += 1;
        let call_id = format!("call-{}", self.said);
        self.ask(&call_id, tool, args, outcome).await
    }

    /// The same, and asks again with the same call_id after every WAIT.
    async fn call_until_allowed(&mut self, tool: &str, args: &Value, outcome: Outcome) -> anyhow::Result<Verdict> {
        self.said += 1;
        let call_id = format!("call-{}", self.said);
        loop {
            tokio::time::sleep(self.pace).await;
            let verdict = self.ask(&call_id, tool, args, outcome.clone()).await?;
            match &verdict.retry_after {
                Some(wait) if verdict.decision() == Decision::Wait => {
                    tokio::time::sleep(Duration::from_millis(millis(Some(wait)))).await;
                }
                _ => return Ok(verdict),
            }
        }
    }

    async fn ask(&mut self, call_id: &str, tool: &str, args: &Value, outcome: Outcome) -> anyhow::Result<Verdict> {
        let verdict = self.client.evaluate(call_id, tool, args).await?;
        self.show.verdict(tool, args, &verdict);
        if verdict.decision() == Decision::Allow {
            let recorded: RecordResponse = self.client.record(call_id, outcome).await?;
            self.show.recorded(&recorded);
        }
        Ok(verdict)
    }
}
