//! `callgate notifications`: tests the destinations of `callgate serve --notifications`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use callgate_client::json::OutputFormat;
use callgate_server::notifications;

/// Arguments of `callgate notifications`.
#[derive(Debug, Args)]
pub(super) struct NotificationsArgs {
    #[command(subcommand)]
    command: NotificationsCommand,
}

#[derive(Debug, Subcommand)]
enum NotificationsCommand {
    /// Send a test message to each destination; exit code 1 if one does not accept it
    Test {
        /// File of the destinations
        #[arg(long, value_name = "FILE", env = "CALLGATE_NOTIFICATIONS")]
        notifications: PathBuf,
        /// Destinations [default: all of the file]
        destinations: Vec<String>,
        #[command(flatten)]
        form: OutputFormat,
    },
}

/// Runs `callgate notifications`.
pub(super) async fn run(args: NotificationsArgs) -> anyhow::Result<ExitCode> {
    let NotificationsCommand::Test { notifications: file, destinations, form } = args.command;
    let results = notifications::test(&file, &destinations).await?;
    for result in &results {
        let notifications::TestResult { destination, channel, problem } = result;
        match (form.json, problem) {
            (true, _) => {
                let line = serde_json::json!({ "destination": destination, "channel": channel, "problem": problem });
                outln!("{line}");
            }
            (false, None) => outln!("{destination} ({channel}): accepted"),
            (false, Some(problem)) => outln!("{destination} ({channel}): not accepted: {problem}"),
        }
    }
    let is_ok = results.iter().all(|result| result.problem.is_none());
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
