//! `callgate database clock`: state of the clocks for retention, and their confirmation by a person.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;

use callgate_core::domain::time::{Timestamp, wait_in_words};
use callgate_net::clock::Clock;
use callgate_postgres::find_running;
use callgate_server::database;
use callgate_store::{Clocks, clocks, parse_url};

/// Arguments of `callgate database clock`.
#[derive(Debug, Args)]
pub(super) struct ClockArgs {
    /// The servers' database
    #[arg(long, value_name = "URL", env = "CALLGATE_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// The data directory of a running server with a private database [default: as for serve]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR", conflicts_with = "database_url")]
    data_dir: Option<PathBuf>,
    /// Confirm the database's clock: end the delay of retention after a gap
    #[arg(long)]
    confirm: bool,
}

pub(super) async fn run(args: ClockArgs) -> anyhow::Result<()> {
    let url = match args.database_url {
        Some(url) => url,
        None => find_running(&database::data_dir(args.data_dir.as_deref())?).await?.connection.url(),
    };
    let options = parse_url(&url).context("--database-url")?;
    let found = clocks(options.clone(), Clock::System.now(), false).await?;
    if args.confirm && !found.agree() {
        let apart = wait_in_words(found.apart_ms.unsigned_abs());
        bail!("not confirmed: the clocks of machine and database differ by {apart}; at most 5 min are allowed");
    }
    if args.confirm {
        clocks(options, Clock::System.now(), true).await?;
    }
    outln!("Database: {}", found.database);
    outln!("This machine: {}", Timestamp::from_millis(found.database.as_millis() + found.apart_ms));
    outln!("Last read by a server: {}", found.seen.map_or("never".to_owned(), |seen| seen.to_string()));
    outln!("{}", delay(&found, args.confirm));
    Ok(())
}

/// The delay of retention, as text.
pub(super) fn delay(clocks: &Clocks, is_confirmed: bool) -> String {
    if clocks.gap_ms == 0 {
        return "Retention deletes on time.".to_owned();
    }
    let gap = wait_in_words(clocks.gap_ms);
    if is_confirmed {
        return format!("Retention deletes on time again; the delay was {gap}.");
    }
    format!(
        "Retention is delayed by {gap}: no server read the database's clock in that time. If the clock is right \
         now, run callgate database clock --confirm."
    )
}
