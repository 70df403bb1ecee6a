//! `callgate database`: operations on a whole database.

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::{database_clock, prices, retain};
use callgate_store::{distribute, parse_url};

/// Arguments of `callgate database`.
#[derive(Debug, Args)]
pub(super) struct DatabaseArgs {
    #[command(subcommand)]
    command: DatabaseCommand,
}

#[derive(Debug, Subcommand)]
enum DatabaseCommand {
    /// Distribute the tables over a Citus cluster (experimental: deploy/citus/README.md)
    Distribute(DistributeArgs),
    /// Drop call trees without recent calls, and empty months
    Retain(retain::RetainArgs),
    /// Replace the prices of models, for costs by model and day
    Prices(prices::PricesArgs),
    /// Show the clocks that retention compares, and confirm the database's
    Clock(database_clock::ClockArgs),
}

/// Arguments of `callgate database distribute`.
#[derive(Debug, Args)]
struct DistributeArgs {
    /// The cluster's coordinator, which the servers use too
    #[arg(long, value_name = "URL", env = "CALLGATE_DATABASE_URL", hide_env_values = true)]
    database_url: String,
}

pub(super) async fn run(args: DatabaseArgs) -> anyhow::Result<()> {
    let args = match args.command {
        DatabaseCommand::Distribute(args) => args,
        DatabaseCommand::Retain(args) => return retain::run(args).await,
        DatabaseCommand::Prices(args) => return prices::run(args).await,
        DatabaseCommand::Clock(args) => return database_clock::run(args).await,
    };
    let options = parse_url(&args.database_url).context("--database-url")?;
    let distributed = distribute(options).await?;
    let workers = match distributed.workers {
        1 => "1 worker".to_owned(),
        workers => format!("{workers} workers"),
    };
    match distributed.tables.as_slice() {
        [] => outln!("Nothing to do: every table is distributed already, over {workers}."),
        tables => outln!("Distributed over {workers}: {}.", tables.join(", ")),
    }
    Ok(())
}
