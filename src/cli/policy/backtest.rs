//! `callgate policy backtest`: what a policy would change, tried on recorded calls. Every recorded outcome counts,
//! whatever the verdict: the calls after a refusal are those that really came.

use std::{collections::BTreeMap, path::PathBuf};

use anstyle::Style;
use anyhow::anyhow;
use clap::Args;

use super::stored;
use crate::{
    cli::{
        load_policy,
        recorded::RecordedArgs,
        remote::Remote,
        replay::judge::{Assessed, Compared, Judge},
        trace::Row,
    },
    domain::finding::Decision,
    policy::{self, Policy},
};

/// What `callgate policy backtest` takes.
#[derive(Debug, Args)]
pub(super) struct BacktestArgs {
    /// The policy to try
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// The policy to compare with; without it the active one of the server (with --since), else the built-in one
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Examples that are shown of each change
    #[arg(long, default_value_t = 3)]
    examples: usize,
    #[command(flatten)]
    recorded: RecordedArgs,
}

/// What changes, and how often.
#[derive(Debug, Default)]
struct Change {
    calls: u64,
    /// Newly refused although the call had succeeded with a new result.
    lost: u64,
    examples: Vec<String>,
}

/// (what becomes of it, the rule that decides, the tool)
type Key = (&'static str, String, String);

pub(super) async fn backtest(args: &BacktestArgs) -> anyhow::Result<()> {
    let new = load_policy(Some(&args.new))?;
    let old = match &args.against {
        Some(path) => load_policy(Some(path))?.as_ref().clone(),
        None if args.recorded.are_stored() => active(&args.recorded.remote).await?,
        None => Policy::default(),
    };
    let rows = args.recorded.rows().await?;
    let (names, sessions) = ((old.version.clone(), new.version.clone()), sessions(&rows));
    let changes = changes(&rows, old, new.as_ref().clone(), args.examples)?;
    let calls = rows.len();
    outln!("{calls} calls of {sessions} sessions: policy {} against {}\n", names.1, names.0);
    if calls == 0 {
        outln!("There is no call to try it on.");
    } else {
        show(&changes);
    }
    Ok(())
}

/// The policy that judges now.
async fn active(remote: &Remote) -> anyhow::Result<Policy> {
    let Some((hash, text)) = stored::policy("", remote).await? else { return Ok(Policy::default()) };
    policy::compile(&text).map_err(|errors| {
        let problems: Vec<String> = errors.iter().map(|error| format!("\n  {error}")).collect();
        let (hash, problems) = (stored::short(&hash), problems.concat());
        anyhow!("the active policy {hash} cannot be read by this build; name a file with --against:{problems}")
    })
}

fn sessions(rows: &[Row]) -> usize {
    rows.iter().map(|row| &row.trace).collect::<std::collections::BTreeSet<_>>().len()
}

fn changes(rows: &[Row], old: Policy, new: Policy, most: usize) -> anyhow::Result<BTreeMap<Key, Change>> {
    let (mut old, mut new) = (Judge::new(old, false), Judge::new(new, false));
    let mut changes: BTreeMap<Key, Change> = BTreeMap::new();
    for row in rows {
        let judged = old.judge(row).and_then(|before| Ok((before, new.judge(row)?)));
        let (before, after) = judged.map_err(|problem| anyhow!("{} {}: {problem}", row.trace, row.call_id))?;
        let Some(what) = what(before.decision, after.decision) else { continue };
        let decides = if after.decision == Decision::Allow { &before } else { &after };
        let rule = decides.winner().map_or_else(String::new, |winner| winner.rule.to_string());
        let change = changes.entry((what, rule, row.tool.to_string())).or_default();
        change.calls += 1;
        change.lost += u64::from(what == "newly refused" && brought_something(row, &after));
        if change.examples.len() < most {
            let message = decides.winner().map_or("", |winner| winner.message.as_str());
            let decisions = format!("{} -> {}", before.decision.as_str(), after.decision.as_str());
            change.examples.push(format!("{} {}: {decisions}: {message}", row.trace, row.call_id));
        }
    }
    Ok(changes)
}

fn what(before: Decision, after: Decision) -> Option<&'static str> {
    match (before, after) {
        (before, after) if before == after => None,
        (Decision::Allow, Decision::Ask) => Some("newly asked"),
        (Decision::Allow, Decision::Wait) => Some("newly delayed"),
        (Decision::Allow, _) => Some("newly refused"),
        (_, Decision::Allow) => Some("newly allowed"),
        _ => Some("otherwise refused"),
    }
}

fn brought_something(row: &Row, assessed: &Assessed) -> bool {
    row.result.as_ref().is_some_and(|result| !result.is_error) && assessed.compared != Compared::Same
}

fn show(changes: &BTreeMap<Key, Change>) {
    const DIM: Style = Style::new().dimmed();
    const BOLD: Style = Style::new().bold();
    if changes.is_empty() {
        outln!("Nothing would change.");
        return;
    }
    outln!("{BOLD}{:>7}  {:<18} {:<16} tool{BOLD:#}", "calls", "change", "rule");
    for ((what, rule, tool), change) in changes {
        outln!("{:>7}  {what:<18} {rule:<16} {tool}", change.calls);
        for example in &change.examples {
            outln!("         {DIM}{example}{DIM:#}");
        }
    }
    let of = |wanted: &str| -> u64 {
        changes.iter().filter(|((what, ..), _)| *what == wanted).map(|(_, change)| change.calls).sum()
    };
    let lost: u64 = changes.values().map(|change| change.lost).sum();
    let (refused, asked) = (of("newly refused"), of("newly asked"));
    let first = if lost > 0 { ": look at those first" } else { "" };
    outln!(
        "\nOf {refused} newly refused calls, {lost} had succeeded with a new result{first}. \
         A person would be asked {asked} times more, and {} calls would be allowed that are not allowed now.",
        of("newly allowed")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_would_newly_refuse_is_counted_by_what_it_had_brought() {
        let row = |seq, tool, text| Row::success("s", seq, tool, text);
        let rows = [row(0, "look", "a"), row(1, "look", "a"), row(2, "drop", "gone")];
        let new = policy::compile(
            "policy_engine: {tool_schemas: {look: {effect: read, risk_level: LOW}, drop: {risk_level: HIGH}}}",
        );
        let changes = changes(&rows, Policy::default(), new.expect("a good policy"), 1).expect("good rows");
        let refused = &changes[&("newly refused", "same_call".to_owned(), "look".to_owned())];
        assert_eq!((refused.calls, refused.lost), (1, 0));
        assert!(refused.examples[0].starts_with("s 1: ALLOW -> REUSE"), "{:?}", refused.examples);
        let asked = &changes[&("newly asked", "tier".to_owned(), "drop".to_owned())];
        assert_eq!((asked.calls, asked.lost), (1, 0));
    }

    #[test]
    fn refused_calls_do_not_count_as_running_and_a_tree_is_judged_as_one() {
        let mut rows: Vec<Row> = (0..300).map(|seq| Row::success("s", seq, "drop", "")).collect();
        for row in &mut rows {
            (row.result, row.refused) = (None, true);
        }
        let mut child = Row::success("child", 300, "drop", "");
        (child.root, child.justification) = (Some(rows[0].trace.clone()), Some("because".to_owned()));
        rows.push(child);
        let new = policy::compile(
            "policy_engine: {authorization: {tiers: [
               {name: drops, pattern: drop, action: per_conversation_grant, ceiling: 301, require_reason: true}]}}",
        );
        let new = new.expect("a good policy");
        let mut judge = Judge::new(new, false);
        let judged: Vec<Assessed> = rows.iter().map(|row| judge.judge(row).expect("a good row")).collect();
        assert_eq!(judged[0].decision, Decision::Deny, "it gives no reason");
        let last = judged.last().expect("some");
        assert_eq!(last.decision, Decision::Allow, "{:?}", last.verdict.findings);
        assert_eq!(judge.into_summary().sessions, 1, "one tree");
    }
}
