//! `callgate policy suggest`: ceilings, thresholds and effects proposed from recorded calls, each with its evidence.
//! Nothing of it is in force: every proposal is a comment, until its owner agrees.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use clap::Args;

use crate::{
    cli::{recorded::RecordedArgs, trace::Row},
    domain::ids::ToolName,
};

/// What `callgate policy suggest` takes.
#[derive(Debug, Args)]
pub(super) struct SuggestArgs {
    #[command(flatten)]
    recorded: RecordedArgs,
}

/// Repetitions that must have been seen before an effect is proposed.
const REPEATS_MIN: u64 = 3;
/// Sessions that must have been seen before a limit is proposed.
const SESSIONS_MIN: usize = 20;

/// What was seen of one tool.
#[derive(Debug, Default)]
struct Seen {
    calls: u64,
    errors: u64,
    /// The same call again in one session, by whether its result was the same.
    same: u64,
    new: u64,
    /// Repetitions of other tools with a new result between which this tool succeeded, alone of its kind.
    changed: u64,
    /// Calls in each session that has any.
    a_session: Vec<u64>,
}

pub(super) async fn suggest(args: &SuggestArgs) -> anyhow::Result<()> {
    let rows = args.recorded.rows().await?;
    print!("{}", suggestion(&rows));
    Ok(())
}

/// One session's calls so far: of each call the last result, and which tools succeeded since.
#[derive(Debug, Default)]
struct Session {
    last: BTreeMap<(String, String), (String, BTreeSet<ToolName>)>,
    calls: BTreeMap<ToolName, u64>,
    steps: u64,
}

fn look(rows: &[Row]) -> (BTreeMap<ToolName, Seen>, Vec<u64>) {
    let mut tools: BTreeMap<ToolName, Seen> = BTreeMap::new();
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    for row in rows {
        let session = sessions.entry(row.trace.to_string()).or_default();
        session.steps += 1;
        *session.calls.entry(row.tool.clone()).or_default() += 1;
        let seen = tools.entry(row.tool.clone()).or_default();
        seen.calls += 1;
        let Some(result) = &row.result else { continue };
        seen.errors += u64::from(result.is_error);
        if result.is_error {
            continue;
        }
        let key = (row.tool.to_string(), row.arguments.canonical());
        let before = session.last.insert(key, (result.identity(), BTreeSet::new()));
        for (_, since) in session.last.values_mut() {
            since.insert(row.tool.clone());
        }
        if let Some((identity, since)) = before {
            let is_same = identity == result.identity();
            let seen = tools.entry(row.tool.clone()).or_default();
            seen.same += u64::from(is_same);
            seen.new += u64::from(!is_same);
            let others: Vec<&ToolName> = since.iter().filter(|tool| **tool != row.tool).collect();
            if let ([only], false) = (others.as_slice(), is_same) {
                tools.entry((*only).clone()).or_default().changed += 1;
            }
        }
    }
    for session in sessions.values() {
        for (tool, calls) in &session.calls {
            tools.entry(tool.clone()).or_default().a_session.push(*calls);
        }
    }
    (tools, sessions.values().map(|session| session.steps).collect())
}

/// The amount that this share of the sessions does not pass.
fn quantile(amounts: &[u64], share: f64) -> u64 {
    let mut amounts = amounts.to_vec();
    amounts.sort_unstable();
    let at = ((amounts.len() as f64 * share).ceil() as usize).clamp(1, amounts.len().max(1)) - 1;
    amounts.get(at).copied().unwrap_or(0)
}

fn suggestion(rows: &[Row]) -> String {
    let (tools, steps) = look(rows);
    let mut text = format!(
        "# Proposed from {} recorded calls of {} sessions. Nothing below is in force: take the `#` off what you agree \
         with.\npolicy_engine:\n  mode: shadow\n",
        rows.len(),
        steps.len()
    );
    if steps.len() >= SESSIONS_MIN {
        let (usual, most) = (quantile(&steps, 0.99), steps.iter().max().copied().unwrap_or(0));
        let _ = writeln!(
            text,
            "  budgets:\n    run: {{}}\n    # run: {{max_steps: {}}}  # proposed: 99 % of sessions made at most \
             {usual} calls, the longest {most}",
            (usual * 2).max(10)
        );
        let ceilings: Vec<u64> = tools.values().map(|seen| quantile(&seen.a_session, 0.99)).collect();
        let highest = ceilings.iter().max().copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "    # call_tree: {{max_calls_per_tool: {}}}  # proposed: 99 % of sessions called no tool more than \
             {highest} times",
            (highest * 2).max(10)
        );
    }
    text.push_str("  unknown_tools: allow\n  tool_schemas:\n");
    for (tool, seen) in &tools {
        let name = serde_json::Value::from(tool.as_str());
        let _ = writeln!(
            text,
            "    {name}: {{}}  # {} calls, {} failed; asked again it gave the same {} times and something new {} times",
            seen.calls, seen.errors, seen.same, seen.new
        );
        if let Some((effect, why)) = effect(seen) {
            let _ = writeln!(text, "    # {name}: {{effect: {effect}}}  # proposed: {why}");
        }
        if let Some(ceiling) = ceiling(seen) {
            let (usual, most) = (quantile(&seen.a_session, 0.99), seen.a_session.iter().max().copied().unwrap_or(0));
            let _ = writeln!(
                text,
                "    # a ceiling of {ceiling} calls in a session  # proposed: 99 % used at most {usual}, one {most}"
            );
        }
    }
    text
}

fn effect(seen: &Seen) -> Option<(&'static str, String)> {
    if seen.changed >= REPEATS_MIN {
        let why =
            format!("{} times another tool's result changed, and nothing but this was called between", seen.changed);
        return Some(("write", why));
    }
    let repeats = seen.same + seen.new;
    if seen.changed == 0 && repeats >= REPEATS_MIN && seen.new * 2 > repeats {
        return Some(("poll", format!("its result changed in {} of {repeats} repetitions", seen.new)));
    }
    let is_read = seen.changed == 0 && seen.same >= REPEATS_MIN && seen.new == 0;
    is_read.then(|| ("read", format!("all {} repetitions gave the same, and nothing changed after it", seen.same)))
}

fn ceiling(seen: &Seen) -> Option<u64> {
    let enough = seen.a_session.len() >= SESSIONS_MIN && seen.changed >= REPEATS_MIN;
    enough.then(|| (quantile(&seen.a_session, 0.99) * 2).max(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::trace::RecordedResult,
        domain::{
            ids::{CallId, SessionId},
            json,
        },
        policy,
    };

    fn row(session: usize, seq: u64, tool: &str, result: &str) -> Row {
        Row {
            trace: SessionId::parse("s", &format!("s{session}")).expect("valid"),
            seq,
            call_id: CallId::parse("c", &seq.to_string()).expect("valid"),
            run: None,
            tool: ToolName::parse("t", tool).expect("valid"),
            arguments: json::parse("{}").expect("valid"),
            at: None,
            refused: false,
            result: Some(RecordedResult {
                text: result.to_owned(),
                sha256: None,
                is_cut: false,
                is_error: false,
                error_type: None,
            }),
        }
    }

    #[test]
    fn what_changed_others_is_proposed_as_a_write_and_nothing_is_in_force() {
        let rows: Vec<Row> = (0..25)
            .flat_map(|s| {
                [row(s, 0, "look", "a"), row(s, 1, "edit", "done"), row(s, 2, "look", "b"), row(s, 3, "look", "b")]
            })
            .collect();
        let text = suggestion(&rows);
        for part in ["\"edit\": {effect: write}}  # proposed: 25 times", "max_steps: 10", "a ceiling of 3 calls"] {
            assert!(text.contains(&part.replace("}}", "}")), "{part} in:\n{text}");
        }
        assert!(!text.contains("\"look\": {effect"), "{text}");
        let policy = policy::compile(&text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
        assert!(policy.tools().all(|(_, spec)| *spec == crate::domain::tool::ToolSpec::default()));
    }
}
