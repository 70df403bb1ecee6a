//! Suggestions of ceilings, thresholds and effects from recorded calls, each with its evidence. They are comments in a
//! policy file, without effect until its owner enables them.

mod evidence;

use std::{collections::BTreeMap, fmt::Write as _};

use self::evidence::{Evidence, SuggestedEffect};
use crate::{domain::ids::ToolName, offline::trace::TraceRow};

/// Minimum number of sessions for a suggested limit.
const SESSIONS_MIN: usize = 20;

/// Period of a suggested ceiling.
const DAY_MS: u64 = 86_400_000;

/// Observations of one tool.
#[derive(Debug, Default)]
struct ToolObservations {
    calls: u64,
    errors: u64,
    /// Number of calls in each session with any.
    a_session: Vec<u64>,
}

fn observe_rows(rows: &[TraceRow]) -> (BTreeMap<ToolName, ToolObservations>, Vec<u64>) {
    let mut tools: BTreeMap<ToolName, ToolObservations> = BTreeMap::new();
    let mut sessions: BTreeMap<String, (u64, BTreeMap<ToolName, u64>)> = BTreeMap::new();
    for row in rows {
        let (steps, calls) = sessions.entry(row.trace.to_string()).or_default();
        *steps += 1;
        if row.refused {
            continue;
        }
        *calls.entry(row.tool.clone()).or_default() += 1;
        let seen = tools.entry(row.tool.clone()).or_default();
        seen.calls += 1;
        seen.errors += u64::from(row.result.as_ref().is_some_and(|result| result.is_error));
    }
    for (tool, calls) in sessions.values().flat_map(|(_, calls)| calls) {
        tools.entry(tool.clone()).or_default().a_session.push(*calls);
    }
    (tools, sessions.values().map(|(steps, _)| *steps).collect())
}

/// The amount that this share of the sessions does not exceed.
fn quantile(amounts: &[u64], share: f64) -> u64 {
    let mut amounts = amounts.to_vec();
    amounts.sort_unstable();
    let at = ((amounts.len() as f64 * share).ceil() as usize).clamp(1, amounts.len().max(1)) - 1;
    amounts.get(at).copied().unwrap_or(0)
}

/// A policy file with the suggestions.
#[must_use]
pub fn suggestion(rows: &[TraceRow]) -> String {
    let (tools, steps) = observe_rows(rows);
    let evidence = Evidence::of(rows);
    let shown = evidence.suggest_effects(&tools.keys().cloned().collect());
    let mut text = format!(
        "# Proposed from {} recorded calls of {} sessions. Every proposal is a comment: take the `#` off what you \
         agree with.\n# In force as it stands: shadow mode, in which nothing is refused.\npolicy_engine:\n  \
         mode: shadow\n",
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
    text.push_str(&tiers(&tools, &shown));
    text.push_str("  unknown_tools: allow\n  tool_schemas:");
    text.push_str(if tools.is_empty() { " {}\n" } else { "\n" });
    for (tool, seen) in &tools {
        let (repetitions, changed) = evidence.repetitions(tool);
        let _ = writeln!(
            text,
            "    {}:\n      # {}, {} failed; {}, {changed} of them with another result",
            quote_name(tool),
            count_noun(seen.calls, "call"),
            seen.errors,
            count_noun(repetitions as u64, "repetition"),
        );
        if let Some(found) = shown.get(tool) {
            let _ = writeln!(text, "      # effect: {}  # proposed: {}", effect(found), describe_evidence(tool, found));
        }
        // A tool must have a key, and this one has no effect.
        text.push_str("      suggested_next: []\n");
    }
    text
}

fn quote_name(tool: &ToolName) -> serde_json::Value {
    serde_json::Value::from(tool.as_str())
}

/// Ceilings, one tier per tool. The last tier permits the others, as without tiers.
fn tiers(tools: &BTreeMap<ToolName, ToolObservations>, shown: &BTreeMap<ToolName, SuggestedEffect>) -> String {
    let mut text = String::new();
    // In a pattern these are wildcards.
    let bounded = tools.iter().filter(|(tool, _)| !tool.as_str().contains(['*', '?', '|']));
    let writes = bounded.filter(|(tool, _)| matches!(shown.get(*tool), Some(SuggestedEffect::Write(_))));
    for (tool, seen, ceiling) in writes.filter_map(|(tool, seen)| Some((tool, seen, ceiling(seen)?))) {
        let (usual, most) = (quantile(&seen.a_session, 0.99), seen.a_session.iter().max().copied().unwrap_or(0));
        let name = quote_name(tool);
        let _ = writeln!(
            text,
            "      # - {{name: {name}, pattern: {name}, action: per_conversation_grant, ceiling: {ceiling}, \
             ttl_ms: {DAY_MS}}}  # proposed: 99 % of sessions used it at most {}, one {most}",
            count_noun(usual, "time")
        );
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "  authorization:\n    tiers:\n{text}      - {{name: every other tool, pattern: \"*\", action: allowlist}}\n"
    )
}

fn effect(shown: &SuggestedEffect) -> &'static str {
    match shown {
        SuggestedEffect::Write(_) => "write",
        SuggestedEffect::Harmless { .. } => "read",
        SuggestedEffect::Poll { .. } => "poll",
    }
}

/// The evidence, in a sentence: `get_order: 412 repetitions, changed 3 times unless update_order ran between: then 36
/// of 40`.
fn describe_evidence(tool: &ToolName, shown: &SuggestedEffect) -> String {
    match shown {
        SuggestedEffect::Write(seen) => format!(
            "{}: {}, changed {} unless {tool} ran between: then {} of {}",
            seen.of,
            count_noun(seen.without as u64, "repetition"),
            count_noun(seen.otherwise as u64, "time"),
            seen.changed,
            seen.chances
        ),
        SuggestedEffect::Harmless { chances, changed } => {
            format!(
                "it ran between {}, and {changed} of them changed",
                count_noun(*chances as u64, "repetition of other tools")
            )
        }
        SuggestedEffect::Poll { looks, changed } => {
            format!(
                "{} with nothing between, and {changed} of them showed something new",
                count_noun(*looks as u64, "look")
            )
        }
    }
}

fn count_noun(count: u64, what: &str) -> String {
    match what.split_once(' ') {
        Some((noun, rest)) if count != 1 => format!("{count} {noun}s {rest}"),
        None if count != 1 => format!("{count} {what}s"),
        _ => format!("{count} {what}"),
    }
}

fn ceiling(seen: &ToolObservations) -> Option<u64> {
    (seen.a_session.len() >= SESSIONS_MIN).then(|| (quantile(&seen.a_session, 0.99) * 2).max(3))
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

    fn row(session: usize, seq: u64, tool: &str, result: &str) -> TraceRow {
        TraceRow::success(&format!("s{session}"), seq, tool, result)
    }

    #[test]
    fn tool_that_changes_others_is_proposed_as_a_write_in_a_comment() {
        let rows: Vec<TraceRow> = (0..25)
            .flat_map(|s| {
                [row(s, 0, "look", "a"), row(s, 1, "edit", "done"), row(s, 2, "look", "b"), row(s, 3, "look", "b")]
            })
            .collect();
        let text = suggestion(&rows);
        for part in [
            "# effect: write  # proposed: look: 25 repetitions, changed 0 times unless edit ran between: then 25 of 25",
            "max_steps: 10",
            "ceiling: 3",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert_eq!(text.matches("# effect:").count(), 1, "{text}");
        let policy = compile_policy(&text);
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
        let rows: Vec<TraceRow> =
            (0..25).flat_map(|s| [row(s, 0, "look", "a"), row(s, 1, "edit", "done"), row(s, 2, "look", "b")]).collect();
        let text = suggestion(&rows);
        let agreed: Vec<String> = text
            .lines()
            .map(|line| if line.contains("# proposed: ") { line.replacen("# ", "", 1) } else { line.to_owned() })
            .collect();
        let policy = compile_policy(&agreed.join("\n"));
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
    fn tool_that_changes_by_itself_is_proposed_as_a_poll_unless_it_creates() {
        let jobs = ["queued", "queued", "running", "done"];
        let rows: Vec<TraceRow> = jobs.iter().zip(0..).map(|(result, seq)| row(0, seq, "status", result)).collect();
        let text = suggestion(&rows);
        assert!(text.contains("# effect: poll  # proposed: 3 looks with nothing between, and 2 of them"), "{text}");
        let made: Vec<TraceRow> = (0..9).map(|seq| row(0, seq, "create", &format!("made {seq}"))).collect();
        assert!(!suggestion(&made).contains("# effect:"), "{}", suggestion(&made));
    }

    #[test]
    fn a_tool_whose_results_differ_by_names_is_no_poll() {
        let ids = ["a-1001", "a-1001", "a-1002", "a-1002", "a-1003"];
        let row_of = |(id, seq): (&&str, u64)| row(0, seq, "take", &format!("{{\"id\":\"{id}\"}}"));
        let rows: Vec<TraceRow> = ids.iter().zip(0..).map(row_of).collect();
        assert!(!suggestion(&rows).contains("# effect: poll"), "{}", suggestion(&rows));
    }

    #[test]
    fn polls_that_take_turns_are_not_taken_for_writes() {
        let turn = |s: usize, seq: u64| {
            let tool = if seq.is_multiple_of(2) { "job" } else { "mail" };
            row(s, seq, tool, &format!("{tool} {seq}"))
        };
        let rows: Vec<TraceRow> = (0..3).flat_map(|s| (0..20).map(move |seq| turn(s, seq))).collect();
        let text = suggestion(&rows);
        assert!(!text.contains("# effect:"), "{text}");
    }

    #[test]
    fn tool_between_frequent_changes_is_not_harmless() {
        let asked = |s: usize| {
            let now = if s.is_multiple_of(10) { "b" } else { "a" };
            [row(s, 0, "look", "a"), row(s, 1, "note", "ok"), row(s, 2, "look", now)]
        };
        let rows: Vec<TraceRow> = (0..20).flat_map(asked).collect();
        assert!(!suggestion(&rows).contains("# effect:"), "{}", suggestion(&rows));
    }

    #[test]
    fn change_by_itself_is_no_evidence_and_a_call_between_equals_is_harmless() {
        let clock = |session: usize| {
            ["clock", "clock", "look", "clock", "look"].into_iter().enumerate().map(move |(seq, tool)| {
                row(session, seq as u64, tool, &if tool == "clock" { seq.to_string() } else { "a".into() })
            })
        };
        let text = suggestion(&(0..25).flat_map(clock).collect::<Vec<TraceRow>>());
        assert!(!text.contains("effect: write"), "{text}");
        let expected =
            "# effect: read  # proposed: it ran between 25 repetitions of other tools, and 0 of them changed";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn two_sessions_are_the_least_that_speaks_for_a_write() {
        let edited = |s| [row(s, 0, "look", "a"), row(s, 1, "edit", "done"), row(s, 2, "look", "b")];
        let once: Vec<TraceRow> = edited(0).into();
        assert!(!suggestion(&once).contains("# effect:"), "{}", suggestion(&once));
        let twice: Vec<TraceRow> = (0..2).flat_map(edited).collect();
        assert!(suggestion(&twice).contains("# effect: write"), "{}", suggestion(&twice));
    }

    #[test]
    fn change_with_another_explanation_is_no_evidence() {
        // `look` changes whether or not `note` ran: by another actor.
        let mut rows: Vec<TraceRow> = Vec::new();
        for s in 0..10 {
            rows.extend([row(s, 0, "look", "a"), row(s, 1, "note", "ok"), row(s, 2, "look", "b")]);
            rows.extend([row(s, 3, "look", "c")]);
        }
        assert!(!suggestion(&rows).contains("effect: write"), "{}", suggestion(&rows));
    }

    #[test]
    fn a_change_by_chance_does_not_hide_a_write() {
        let edited =
            |s| [row(s, 0, "look", "a"), row(s, 1, "edit", "done"), row(s, 2, "look", "b"), row(s, 3, "look", "b")];
        let mut rows: Vec<TraceRow> = (0..25).flat_map(edited).collect();
        rows.extend([row(25, 0, "look", "a"), row(25, 1, "look", "z")]);
        let expected =
            "# effect: write  # proposed: look: 26 repetitions, changed 1 time unless edit ran between: then 25";
        assert!(suggestion(&rows).contains(expected), "{}", suggestion(&rows));
    }

    #[test]
    fn empty_trace_makes_an_empty_policy() {
        assert_eq!(compile_policy(&suggestion(&[])).tools().count(), 0);
    }

    fn compile_policy(text: &str) -> Policy {
        policy::compile(text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
    }
}
