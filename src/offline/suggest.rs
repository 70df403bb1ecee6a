//! Ceilings, thresholds and effects proposed from recorded calls, each with its evidence.
//! Nothing of it is in force: every proposal is a comment, until its owner agrees.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::{domain::ids::ToolName, offline::trace::Row};

/// Repetitions that must have been seen before an effect is proposed.
const REPEATS_MIN: u64 = 3;
/// Sessions that must have been seen before a limit is proposed.
const SESSIONS_MIN: usize = 20;

/// One in so many is chance: the world also changes by others' hands.
const CHANCE: u64 = 20;

/// How long a proposed ceiling holds.
const DAY_MS: u64 = 86_400_000;

/// What was seen of one tool.
#[derive(Debug, Default)]
struct Seen {
    calls: u64,
    errors: u64,
    /// The same call again in one session, by whether its result was the same.
    same: u64,
    new: u64,
    /// Those between which no other tool succeeded, and of them those with a new result.
    alone: u64,
    by_itself: u64,
    /// Repetitions of other tools with a new result between which this tool succeeded, alone of its kind, as far as
    /// they are evidence of a write.
    changed: u64,
    /// Calls in each session that has any.
    a_session: Vec<u64>,
}

/// One session's calls so far: of each call the last result, and which tools succeeded since.
#[derive(Debug, Default)]
struct Session {
    last: BTreeMap<(String, String), (String, BTreeSet<ToolName>)>,
    calls: BTreeMap<ToolName, u64>,
    steps: u64,
}

/// How often a tool's result was new when nothing but the first had succeeded in between.
type Changes = BTreeMap<(ToolName, ToolName), u64>;

/// Changes that speak for a write. What changes by itself was not changed by anybody, and two tools that change each
/// other are two polls that take turns.
fn evidence(tools: &BTreeMap<ToolName, Seen>, changes: &Changes) -> Vec<(ToolName, u64)> {
    let is_steady = |tool: &ToolName| tools.get(tool).is_none_or(|seen| seen.by_itself * CHANCE <= seen.alone);
    let is_one_way = |by: &ToolName, of: &ToolName, count: u64| {
        changes.get(&(of.clone(), by.clone())).is_none_or(|back| back * CHANCE <= count)
    };
    let speak = changes.iter().filter(|((by, of), count)| is_steady(of) && is_one_way(by, of, **count));
    speak.map(|((by, _), count)| (by.clone(), *count)).collect()
}

fn look(rows: &[Row]) -> (BTreeMap<ToolName, Seen>, Vec<u64>) {
    let mut tools: BTreeMap<ToolName, Seen> = BTreeMap::new();
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let mut changes = Changes::new();
    for row in rows {
        let session = sessions.entry(row.trace.to_string()).or_default();
        session.steps += 1;
        if row.refused {
            continue;
        }
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
            seen.alone += u64::from(others.is_empty());
            seen.by_itself += u64::from(!is_same && others.is_empty());
            if let ([only], false) = (others.as_slice(), is_same) {
                *changes.entry(((*only).clone(), row.tool.clone())).or_default() += 1;
            }
        }
    }
    for (by, changed) in evidence(&tools, &changes) {
        tools.entry(by).or_default().changed += changed;
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

/// A policy file with what the calls speak for.
#[must_use]
pub fn suggestion(rows: &[Row]) -> String {
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
            "  budgets:\n    tenant: {{}}\n    # run: {{max_steps: {}}}  # proposed: 99 % of sessions made at most \
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
    text.push_str(&tiers(&tools));
    text.push_str("  unknown_tools: allow\n  tool_schemas:");
    text.push_str(if tools.is_empty() { " {}\n" } else { "\n" });
    for (tool, seen) in &tools {
        let _ = writeln!(
            text,
            "    {}:\n      # {} calls, {} failed; asked again it gave the same {} times and something new {} times",
            quoted(tool),
            seen.calls,
            seen.errors,
            seen.same,
            seen.new
        );
        if let Some((effect, why)) = effect(seen) {
            let _ = writeln!(text, "      # effect: {effect}  # proposed: {why}");
        }
        // A tool must have a key, and this one says nothing.
        text.push_str("      suggested_next: []\n");
    }
    text
}

fn quoted(tool: &ToolName) -> serde_json::Value {
    serde_json::Value::from(tool.as_str())
}

/// Ceilings, one tier a tool. The last tier lets the others pass, as they would without tiers.
fn tiers(tools: &BTreeMap<ToolName, Seen>) -> String {
    let mut text = String::new();
    // In a pattern these stand for something else.
    let bounded = tools.iter().filter(|(tool, _)| !tool.as_str().contains(['*', '?', '|']));
    for (tool, seen, ceiling) in bounded.filter_map(|(tool, seen)| Some((tool, seen, ceiling(seen)?))) {
        let (usual, most) = (quantile(&seen.a_session, 0.99), seen.a_session.iter().max().copied().unwrap_or(0));
        let name = quoted(tool);
        let _ = writeln!(
            text,
            "      # - {{name: {name}, pattern: {name}, action: per_conversation_grant, ceiling: {ceiling}, \
             ttl_ms: {DAY_MS}}}  # proposed: 99 % of sessions used it at most {usual} times, one {most}"
        );
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "  authorization:\n    tiers:\n{text}      - {{name: every other tool, pattern: \"*\", action: allowlist}}\n"
    )
}

fn effect(seen: &Seen) -> Option<(&'static str, String)> {
    if seen.changed >= REPEATS_MIN {
        let why =
            format!("{} times another tool's result changed, and nothing but this was called between", seen.changed);
        return Some(("write", why));
    }
    let repeats = seen.same + seen.new;
    if seen.changed == 0 && repeats >= REPEATS_MIN && seen.by_itself * 2 > repeats {
        let why =
            format!("its result changed in {} of {repeats} repetitions with nothing called between", seen.by_itself);
        return Some(("poll", why));
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
        domain::budget::Budgets,
        domain::{effect::EffectKind, tool::ToolSpec},
        policy::{self, Policy},
        rules::tier::{self, Action},
    };

    fn row(session: usize, seq: u64, tool: &str, result: &str) -> Row {
        Row::success(&format!("s{session}"), seq, tool, result)
    }

    #[test]
    fn what_changed_others_is_proposed_as_a_write_and_nothing_is_in_force() {
        let rows: Vec<Row> = (0..25)
            .flat_map(|s| {
                [row(s, 0, "look", "a"), row(s, 1, "edit", "done"), row(s, 2, "look", "b"), row(s, 3, "look", "b")]
            })
            .collect();
        let text = suggestion(&rows);
        for part in ["# effect: write  # proposed: 25 times", "max_steps: 10", "ceiling: 3"] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert_eq!(text.matches("effect:").count(), 1, "{text}");
        let policy = compiled(&text);
        assert!(policy.tools().all(|(_, spec)| *spec == ToolSpec::default()));
        assert_eq!(policy.rules.get::<Budgets>(), &Budgets::default());
        assert!(
            policy
                .rules
                .get::<tier::Params>()
                .tiers
                .iter()
                .all(|tier| tier.action == Action::Allow && tier.rate.is_none())
        );
    }

    #[test]
    fn a_proposal_is_in_force_once_its_comment_is_taken_away() {
        let rows: Vec<Row> =
            (0..25).flat_map(|s| [row(s, 0, "look", "a"), row(s, 1, "edit", "done"), row(s, 2, "look", "b")]).collect();
        let text = suggestion(&rows);
        let agreed: Vec<String> = text
            .lines()
            .map(|line| if line.contains("# proposed: ") { line.replacen("# ", "", 1) } else { line.to_owned() })
            .collect();
        let policy = compiled(&agreed.join("\n"));
        let effects: Vec<(&str, EffectKind)> = policy.tools().map(|(name, spec)| (name, spec.effect)).collect();
        assert_eq!(effects, [("edit", EffectKind::Write), ("look", EffectKind::Unknown)]);
        let tiers: Vec<(&str, u64)> = policy
            .rules
            .get::<tier::Params>()
            .tiers
            .iter()
            .map(|tier| (tier.tools.as_str(), tier.grant.ceiling))
            .collect();
        assert_eq!(tiers[0], ("edit", 3), "{tiers:?}");
        assert_ne!(policy.rules.get::<Budgets>(), &Budgets::default());
    }

    #[test]
    fn what_changes_by_itself_is_proposed_as_a_poll() {
        let rows: Vec<Row> = (0..4).map(|seq| row(0, seq, "status", &seq.to_string())).collect();
        let text = suggestion(&rows);
        assert!(text.contains("# effect: poll  # proposed: its result changed in 3 of 3 repetitions"), "{text}");
    }

    #[test]
    fn polls_that_take_turns_are_not_taken_for_writes() {
        let turn = |seq: u64, tool: &'static str| row(0, seq, tool, &format!("{tool} {seq}"));
        let rows: Vec<Row> = (0..20).map(|seq| turn(seq, if seq % 2 == 0 { "job" } else { "mail" })).collect();
        let text = suggestion(&rows);
        assert!(!text.contains("# effect:"), "{text}");
    }

    #[test]
    fn what_changes_by_itself_speaks_for_no_write() {
        let clock = |session: usize| {
            ["clock", "clock", "look", "clock", "look"].into_iter().enumerate().map(move |(seq, tool)| {
                row(session, seq as u64, tool, &if tool == "clock" { seq.to_string() } else { "a".into() })
            })
        };
        let text = suggestion(&(0..25).flat_map(clock).collect::<Vec<Row>>());
        assert!(!text.contains("effect: write"), "{text}");
        assert!(text.contains("# effect: read  # proposed: all 25 repetitions"), "{text}");
    }

    #[test]
    fn a_change_by_chance_does_not_hide_a_write() {
        let edited =
            |s| [row(s, 0, "look", "a"), row(s, 1, "edit", "done"), row(s, 2, "look", "b"), row(s, 3, "look", "b")];
        let mut rows: Vec<Row> = (0..25).flat_map(edited).collect();
        rows.extend([row(25, 0, "look", "a"), row(25, 1, "look", "z")]);
        assert!(suggestion(&rows).contains("# effect: write  # proposed: 25 times"), "{}", suggestion(&rows));
    }

    #[test]
    fn nothing_recorded_makes_a_policy_that_says_nothing() {
        assert_eq!(compiled(&suggestion(&[])).tools().count(), 0);
    }

    fn compiled(text: &str) -> Policy {
        policy::compile(text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
    }
}
