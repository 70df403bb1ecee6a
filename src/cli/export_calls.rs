//! `callgate export calls`: calls as CSV, straight from the database.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use super::{recorded::duration_ms, target::CommandTarget, tokens::create_private};
use callgate_core::domain::time::Timestamp;
use callgate_net::clock::Clock;
use callgate_store::{CallRange, CopyError, copy_calls};

/// Exports that are no person's data.
#[derive(Debug, Subcommand)]
pub(super) enum ExportCommand {
    /// Export calls as CSV, in the columns of the view callgate.calls
    Calls(CallsArgs),
}

/// Arguments of `callgate export calls`.
#[derive(Debug, Args)]
pub(super) struct CallsArgs {
    /// Calls judged in this period, or since this time: 90m, 24h, 7d, 2026-11-01
    #[arg(long, value_name = "TIME")]
    since: String,
    /// Calls judged before this time [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Write to this new file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A time as PostgreSQL reads it.
fn time(text: &str) -> String {
    match duration_ms(text) {
        Ok(back_ms) => Timestamp::from_millis(Clock::System.now().as_millis() - back_ms).to_string(),
        Err(_) => text.to_owned(),
    }
}

/// Runs `callgate export calls`.
pub(super) async fn run(args: CallsArgs, place: &CommandTarget) -> anyhow::Result<()> {
    let Some(url) = place.database_url().await? else {
        bail!("callgate export calls reads the database: name it with --database-url or --data-dir");
    };
    let options = callgate_store::parse_url(&url).context("--database-url")?;
    let (since, until) = (time(&args.since), args.until.as_deref().map_or_else(|| "now".to_owned(), time));
    let range = CallRange { tenant: place.tenant(), since: &since, until: &until };
    let Some(path) = &args.out else {
        return match copy_calls(options, &range, &mut io::stdout()).await {
            // The reader has enough.
            Err(CopyError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            copied => Ok(copied.map(drop)?),
        };
    };
    let file = create_private(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut file = BufWriter::new(file);
    let mut copied = copy_calls(options, &range, &mut file).await.map_err(anyhow::Error::from);
    if let Err(error) = file.flush() {
        copied = copied.and(Err(error).context("cannot write the file"));
    }
    if copied.is_err() {
        // A part of the calls would look like all of them.
        let _ = fs::remove_file(path);
    }
    errln!("{} bytes.", copied?);
    Ok(())
}
