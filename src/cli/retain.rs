//! `callgate database retain`: what is too old is dropped.

use anyhow::Context as _;
use clap::Args;

use crate::store::{RETAIN_DAYS_MIN, Retained, parse_url, retain};

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
    let Retained { trees, dropped, lived_in } = retain(options, args.older_than).await?;
    match dropped.as_slice() {
        [] => outln!("Call trees dropped: {trees}. No month is empty."),
        dropped => outln!("Call trees dropped: {trees}. Partitions dropped: {}.", dropped.join(", ")),
    }
    if !lived_in.is_empty() {
        outln!("Kept, since trees that were born then still live: the months of {}.", lived_in.join(", "));
    }
    Ok(())
}
