//! `callgate top`: the state of a fleet as one plain table, as JSON, or redrawn until it is interrupted
//! (docs/cli.md#top). All of it comes from the server: `fleet.rs` reads it, `lists.rs` makes rows, `render.rs` prints.

mod figures;
mod fleet;
mod lists;
mod render;
mod screen;
#[cfg(test)]
mod tests;

use std::time::Duration;

use clap::Args;
use tokio::time::{sleep, timeout};

use self::fleet::{FleetClient, FleetSnapshot};
use callgate_client::{out, output, remote::Remote};

/// Arguments of `callgate top`.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Redraw the table until it is interrupted
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Refresh interval of --watch, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    interval: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

/// Time between the two reads that rates are the difference of.
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// Longest time for all answers of one read.
const READ_MAX: Duration = Duration::from_secs(10);

/// Runs it.
pub(super) async fn run(args: TopArgs) -> anyhow::Result<()> {
    let asker = FleetClient::new(args.remote.connect_later()?, args.remote.server()?.to_owned());
    if args.watch {
        watch(&asker, Duration::from_secs(args.interval)).await;
        return Ok(());
    }
    let before = asker.take_snapshot(None).await?;
    sleep(RATE_WINDOW).await;
    let fleet = asker.take_snapshot(Some(&before)).await?;
    match args.json {
        true => outln!("{}", render::json(&fleet)),
        false => out!("{}", render::text(&fleet)),
    }
    Ok(())
}

/// Redraws the table until interrupted, or its output is closed. While the server is unavailable, the reason is shown
/// in place of stale figures.
async fn watch(asker: &FleetClient, interval: Duration) {
    let mut before: Option<FleetSnapshot> = None;
    while !output::is_closed() {
        let problem = match timeout(READ_MAX, asker.take_snapshot(before.as_ref())).await {
            Ok(Ok(fleet)) => {
                output::clear_screen();
                outln!("{}", render::text(&fleet));
                // The first read has no rates: the second follows soon.
                let pause = if before.is_none() { RATE_WINDOW.min(interval) } else { interval };
                before = Some(fleet);
                sleep(pause).await;
                continue;
            }
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("no answer within {} s", READ_MAX.as_secs()),
        };
        output::clear_screen();
        outln!("{}", render::unavailable(&problem, before.as_ref()));
        sleep(interval).await;
    }
}
