//! `callgate policy suggest`: suggested ceilings, thresholds and effects from recorded calls.

use clap::Args;
use serde_json::json;

use crate::cli::recorded::RecordedArgs;
use callgate_client::json::OutputFormat;
use callgate_core::offline::{backtest::session_count, suggest::suggestion};

/// Arguments of `callgate policy suggest`.
#[derive(Debug, Args)]
pub(super) struct SuggestArgs {
    #[command(flatten)]
    form: OutputFormat,
    #[command(flatten)]
    recorded: RecordedArgs,
}

pub(super) async fn suggest(args: &SuggestArgs) -> anyhow::Result<()> {
    let rows = args.recorded.rows().await?;
    let text = suggestion(&rows);
    if args.form.json {
        outln!("{}", json!({"calls": rows.len(), "sessions": session_count(&rows), "policy": text}));
    } else {
        out!("{text}");
    }
    Ok(())
}
