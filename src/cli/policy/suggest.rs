//! `callgate policy suggest`: ceilings, thresholds and effects proposed from recorded calls.

use clap::Args;

use crate::{cli::recorded::RecordedArgs, offline::suggest::suggestion};

/// What `callgate policy suggest` takes.
#[derive(Debug, Args)]
pub(super) struct SuggestArgs {
    #[command(flatten)]
    recorded: RecordedArgs,
}

pub(super) async fn suggest(args: &SuggestArgs) -> anyhow::Result<()> {
    out!("{}", suggestion(&args.recorded.rows().await?));
    Ok(())
}
