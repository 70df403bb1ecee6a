//! `callgate database retain`: drops old data.

use anyhow::{Context as _, bail};
use clap::Args;

use super::database_clock::delay;
use callgate_core::domain::time::wait_in_words;
use callgate_net::clock::Clock;
use callgate_store::{RETAIN_DAYS_MIN, Retained, parse_url, retain};

/// What `callgate database retain` takes.
#[derive(Debug, Args)]
pub(super) struct RetainArgs {
    /// The database that the servers are given
    #[arg(long, value_name = "URL", env = "CALLGATE_DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// Drop call trees that have been silent for more days than that, by whole months; at least 30
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(i64::from(RETAIN_DAYS_MIN)..))]
    older_than: u32,
}

pub(super) async fn run(args: RetainArgs) -> anyhow::Result<()> {
    let options = parse_url(&args.database_url).context("--database-url")?;
    let (clocks, retained) = retain(options, args.older_than, Clock::System.now()).await?;
    if !clocks.agree() {
        let apart = wait_in_words(clocks.apart_ms.unsigned_abs());
        bail!("nothing was dropped: the clocks of this machine and of the database are {apart} apart; 5 min may be");
    }
    let Retained { trees, moved, dropped } = retained;
    let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
    outln!("Call trees dropped: {trees}. Moved to this month, since they still live: {moved}.");
    outln!("Partitions dropped: {dropped}.");
    outln!("{}", delay(&clocks, false));
    Ok(())
}
