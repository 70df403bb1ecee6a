//! `callgate database retain`: drops old data.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;

use super::database_clock::delay;
use callgate_core::domain::time::wait_in_words;
use callgate_net::clock::Clock;
use callgate_store::{RETAIN_DAYS_MIN, RetentionResult, parse_url, retain};

/// Arguments of `callgate database retain`.
#[derive(Debug, Args)]
pub(super) struct RetainArgs {
    /// The servers' database
    #[arg(long, value_name = "URL", env = "CALLGATE_DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// Drop call trees without calls for more than DAYS, by whole months; at least 30
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(i64::from(RETAIN_DAYS_MIN)..))]
    older_than: u32,
    /// Write each month's calls and outcomes to CSV files in this folder before they are dropped
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

pub(super) async fn run(args: RetainArgs) -> anyhow::Result<()> {
    let options = parse_url(&args.database_url).context("--database-url")?;
    let (clocks, retained) = retain(options, args.older_than, Clock::System.now(), args.export.as_deref()).await?;
    if !clocks.agree() {
        let apart = wait_in_words(clocks.apart_ms.unsigned_abs());
        bail!("nothing was dropped: the clocks of machine and database differ by {apart}; at most 5 min are allowed");
    }
    let RetentionResult { trees, moved, dropped } = retained;
    let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
    outln!("Call trees dropped: {trees}. Active ones moved to this month: {moved}.");
    outln!("Partitions dropped: {dropped}.");
    outln!("{}", delay(&clocks, false));
    Ok(())
}
