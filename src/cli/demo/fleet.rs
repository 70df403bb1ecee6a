//! Concurrent agents of the demo, which teach the server that a tool is down.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::task::JoinSet;

use super::client::{DemoClient, ExecutionOutcome};
use callgate_proto::{time::millis, v1::Decision};

/// Number of agents: enough for an estimate of high confidence.
pub(super) const AGENTS: u32 = 36;
/// Maximum delay until the server has counted reports.
const COUNTED: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Maximum wait of an agent before its retry.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// Each agent calls the tool, fails, waits as advised, retries, and fails again; returns once the server has counted
/// that.
pub(super) async fn retry_in_vain(client: DemoClient, tool: String, broken: ExecutionOutcome) -> anyhow::Result<()> {
    let mut agents = JoinSet::new();
    for n in 0..AGENTS {
        let agent = client.with_session(&format!("agent-{n}"));
        agents.spawn(retry(agent, tool.clone(), n, broken.clone()));
    }
    let mut retried = 0.0;
    while let Some(done) = agents.join_next().await {
        retried += done.context("an agent failed")??;
    }
    let counted = async {
        // Counts grow old by the second, so that they are never quite as many as there were.
        while client.trials(&tool).await? < retried * 0.99 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(COUNTED, counted).await.unwrap_or(Ok(()))
}

/// Returns its number of retries.
async fn retry(mut agent: DemoClient, tool: String, n: u32, broken: ExecutionOutcome) -> anyhow::Result<f64> {
    let args = json!({ "item": 1_000 + n });
    if agent.evaluate("first", &tool, &args).await?.decision() != Decision::Allow {
        return Ok(0.0);
    }
    let told = agent.record("first", broken.clone()).await?;
    let Some(wait) = told.advice.and_then(|advice| advice.retry_after) else { return Ok(0.0) };
    tokio::time::sleep(Duration::from_millis(millis(Some(&wait))).min(WAIT_MAX)).await;
    if agent.evaluate_and_wait("retry", &tool, &args, WAIT_MAX).await?.decision() != Decision::Allow {
        return Ok(0.0);
    }
    agent.record("retry", broken).await?;
    Ok(1.0)
}
