//! `callgate database`: operations on a whole database.

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::{database_clock, retain};
use callgate_store::{distribute, parse_url};

/// What `callgate database` takes.
#[derive(Debug, Args)]
pub(super) struct DatabaseArgs {
    #[command(subcommand)]
    command: DatabaseCommand,
}

#[derive(Debug, Subcommand)]
enum DatabaseCommand {
    /// Spread the tables over the workers of a Citus cluster, to try it: deploy/citus/README.md says what does not run
    /// there yet
    Distribute(DistributeArgs),
    /// Drop call trees that have been silent for long, and the months that nobody lives in any more
    Retain(retain::RetainArgs),
    /// Tell what retention knows of the clocks; confirm that the database's is right
    Clock(database_clock::ClockArgs),
}

/// What `callgate database distribute` takes.
#[derive(Debug, Args)]
struct DistributeArgs {
    /// The coordinator of the cluster, which servers are given too
    #[arg(long, value_name = "URL", env = "CALLGATE_DATABASE_URL", hide_env_values = true)]
    database_url: String,
}

pub(super) async fn run(args: DatabaseArgs) -> anyhow::Result<()> {
    let args = match args.command {
        DatabaseCommand::Distribute(args) => args,
        DatabaseCommand::Retain(args) => return retain::run(args).await,
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
