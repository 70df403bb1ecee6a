//! Many agents at once, for what one alone cannot show.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::task::JoinSet;

use super::client::{Client, Outcome};
use crate::grpc::{time::millis, v1::Decision};

/// How many agents there are: enough for an estimate of high confidence.
pub(super) const AGENTS: u32 = 36;
/// How long a server takes at most to count what was reported.
const COUNTED: Duration = Duration::from_millis(4_500);
/// How often an agent asks again before it gives up.
const ASKS_MAX: u32 = 10;

/// Each agent calls the tool, fails, waits as told, retries, and fails again; then the server has time to count.
pub(super) async fn retry_in_vain(client: &Client, tool: &str, broken: &Outcome) -> anyhow::Result<()> {
    let mut agents = JoinSet::new();
    for n in 0..AGENTS {
        let agent = client.other(&format!("agent-{n}"));
        agents.spawn(retry(agent, tool.to_owned(), n, broken.clone()));
    }
    while let Some(done) = agents.join_next().await {
        done.context("an agent died")??;
    }
    tokio::time::sleep(COUNTED).await;
    Ok(())
}

async fn retry(mut agent: Client, tool: String, n: u32, broken: Outcome) -> anyhow::Result<()> {
    let args = json!({ "item": 1_000 + n });
    for attempt in ["first", "retry"] {
        for _ in 0..ASKS_MAX {
            let verdict = agent.evaluate(attempt, &tool, &args).await?;
            match verdict.decision() {
                Decision::Allow => {
                    let told = agent.record(attempt, broken.clone()).await?;
                    let wait_ms = told.advice.map_or(0, |advice| millis(advice.retry_after.as_ref()));
                    tokio::time::sleep(Duration::from_millis(wait_ms.min(2_000))).await;
                    break;
                }
                Decision::Wait => {
                    tokio::time::sleep(Duration::from_millis(millis(verdict.retry_after.as_ref()))).await;
                }
                _ => return Ok(()),
            }
        }
    }
    Ok(())
}
