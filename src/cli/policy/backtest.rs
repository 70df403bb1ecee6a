//! `callgate policy backtest`: effect of a policy change on recorded calls. Every recorded outcome is folded, whatever
//! the verdict, because the recorded later calls depend on it.

use std::path::PathBuf;

use anstyle::Style;
use anyhow::anyhow;
use clap::Args;
use serde_json::json;

use super::stored;
use crate::cli::recorded::RecordedArgs;
use callgate_client::{json::OutputFormat, remote::Remote};
use callgate_core::{
    domain::difference::DifferenceKind,
    offline::backtest::{Changes, DecisionChange, backtest as compare, session_count},
    policy::{self, Policy},
};
use callgate_server::policy_file::load_policy;

/// Arguments of `callgate policy backtest`.
#[derive(Debug, Args)]
pub(super) struct BacktestArgs {
    /// The policy to test
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// The policy to compare with [default: with --since the server's active one, else the built-in one]
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Number of examples of each change
    #[arg(long, default_value_t = 3)]
    examples: usize,
    #[command(flatten)]
    form: OutputFormat,
    #[command(flatten)]
    recorded: RecordedArgs,
}

pub(super) async fn backtest(args: &BacktestArgs) -> anyhow::Result<()> {
    let new = load_policy(Some(&args.new))?;
    let old = match &args.against {
        Some(path) => load_policy(Some(path))?.as_ref().clone(),
        None if args.recorded.are_stored() => active(&args.recorded.remote).await?,
        None => Policy::default(),
    };
    let rows = args.recorded.rows().await?;
    let (names, sessions) = ((old.version.clone(), new.version.clone()), session_count(&rows));
    let changes = compare(&rows, old, new.as_ref().clone(), args.examples).map_err(|problem| anyhow!(problem))?;
    if args.form.json {
        for ((what, rule, tool), DecisionChange { calls, lost, approved, examples }) in &changes {
            let examples: Vec<String> = examples.iter().map(ToString::to_string).collect();
            outln!(
                "{}",
                json!({"change": what.as_str(), "rule": rule, "tool": tool, "calls": calls, "lost": lost,
                    "approved": approved, "examples": examples})
            );
        }
        return Ok(());
    }
    let calls = rows.len();
    outln!("{calls} calls of {sessions} sessions: policy {} compared with {}\n", names.1, names.0);
    if calls == 0 {
        outln!("There are no calls to test it on.");
    } else {
        show(&changes);
    }
    Ok(())
}

/// The active policy.
async fn active(remote: &Remote) -> anyhow::Result<Policy> {
    let Some((hash, text)) = stored::policy("", remote).await? else { return Ok(Policy::default()) };
    policy::compile(&text).map_err(|errors| {
        let problems: Vec<String> = errors.iter().map(|error| format!("\n  {error}")).collect();
        let (hash, problems) = (stored::short(&hash), problems.concat());
        anyhow!("this build cannot read the active policy {hash}; pass a file with --against:{problems}")
    })
}

fn show(changes: &Changes) {
    const DIM: Style = Style::new().dimmed();
    const BOLD: Style = Style::new().bold();
    if changes.is_empty() {
        outln!("No decision would change.");
        return;
    }
    outln!("{BOLD}{:>7}  {:<18} {:<16} tool{BOLD:#}", "calls", "change", "rule");
    for ((what, rule, tool), change) in changes {
        outln!("{:>7}  {:<18} {rule:<16} {tool}", change.calls, what.as_str());
        for example in &change.examples {
            outln!("         {DIM}{example}{DIM:#}");
        }
    }
    let of = |wanted: DifferenceKind| -> u64 {
        changes.iter().filter(|((what, ..), _)| *what == wanted).map(|(_, change)| change.calls).sum()
    };
    let lost: u64 = changes.values().map(|change| change.lost).sum();
    let approved: u64 = changes.values().map(|change| change.approved).sum();
    let (refused, asked) = (of(DifferenceKind::NewlyRefused), of(DifferenceKind::NewlyAsked));
    let first = if lost > 0 { ": check those first" } else { "" };
    outln!(
        "\nOf {refused} newly refused calls, {lost} had succeeded with a new result{first}; approvers had approved \
         {approved} of them. \
         There would be {asked} more approval requests, and {} calls would be newly allowed.",
        of(DifferenceKind::NewlyAllowed)
    );
}
