//! What a policy would change, tried on recorded calls. Every recorded outcome counts, whatever the verdict: the calls
//! after a refusal are those that really came.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    judge::{Assessed, Compared, Judge},
    trace::Row,
};
use crate::{domain::finding::Decision, policy::Policy};

/// What changes, and how often.
#[derive(Debug, Default)]
pub struct Change {
    /// Calls that it concerns.
    pub calls: u64,
    /// Newly refused although the call had succeeded with a new result.
    pub lost: u64,
    /// Newly refused although a person had approved the call and it had succeeded.
    pub approved: u64,
    /// The first of them, for people.
    pub examples: Vec<String>,
}

/// (what becomes of it, the rule that decides, the tool)
pub type Key = (&'static str, String, String);

/// All that changes.
pub type Changes = BTreeMap<Key, Change>;

/// How many sessions the calls are of.
#[must_use]
pub fn session_count(rows: &[Row]) -> usize {
    rows.iter().map(|row| &row.trace).collect::<BTreeSet<_>>().len()
}

/// Judges the calls by both policies, and keeps at most `examples_max` examples of each change.
///
/// # Errors
/// A call that cannot be judged, by its session and id.
pub fn backtest(rows: &[Row], old: Policy, new: Policy, examples_max: usize) -> Result<Changes, String> {
    let (mut old, mut new) = (Judge::new(old, false), Judge::new(new, false));
    let mut changes: Changes = Changes::new();
    for row in rows {
        let judged = old.judge(row).and_then(|before| Ok((before, new.judge(row)?)));
        let (before, after) = judged.map_err(|problem| format!("{} {}: {problem}", row.trace, row.call_id))?;
        // What a person has approved is no question any more, by either policy.
        let held = |decision| if row.approved && decision == Decision::Ask { Decision::Allow } else { decision };
        let Some(what) = what(held(before.decision), held(after.decision)) else { continue };
        let decides = if after.decision == Decision::Allow { &before } else { &after };
        let rule = decides.winner().map_or_else(String::new, |winner| winner.rule.to_string());
        let change = changes.entry((what, rule, row.tool.to_string())).or_default();
        change.calls += 1;
        let is_lost = what == "newly refused" && brought_something(row, &after);
        change.lost += u64::from(is_lost);
        change.approved += u64::from(is_lost && row.approved);
        if change.examples.len() < examples_max {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_would_newly_refuse_is_counted_by_what_it_had_brought() {
        let row = |seq, tool, text| Row::success("s", seq, tool, text);
        let rows = [row(0, "look", "a"), row(1, "look", "a"), row(2, "drop", "gone")];
        let new = crate::policy::compile(
            "policy_engine: {tool_schemas: {look: {effect: read, risk_level: LOW}, drop: {risk_level: HIGH}}}",
        );
        let changes = backtest(&rows, Policy::default(), new.expect("a good policy"), 1).expect("good rows");
        let refused = &changes[&("newly refused", "same_call".to_owned(), "look".to_owned())];
        assert_eq!((refused.calls, refused.lost), (1, 0));
        assert!(refused.examples[0].starts_with("s 1: ALLOW -> REUSE"), "{:?}", refused.examples);
        let asked = &changes[&("newly asked", "tier".to_owned(), "drop".to_owned())];
        assert_eq!((asked.calls, asked.lost), (1, 0));
    }

    #[test]
    fn what_a_person_had_approved_is_counted_when_it_is_newly_refused() {
        let policy = |text: &str| crate::policy::compile(text).expect("a good policy");
        let asks = policy("policy_engine: {tool_schemas: {drop: {risk_level: HIGH}}}");
        let denies = policy(
            "policy_engine: {authorization: {tiers: [{name: no, pattern: drop, action: deny}]},
               tool_schemas: {drop: {effect: write, idempotent: true}}}",
        );
        let mut rows = [Row::success("s", 0, "drop", "gone"), Row::success("t", 0, "drop", "gone")];
        rows[0].approved = true;
        let changes = backtest(&rows, asks.clone(), denies, 1).expect("good rows");
        let refused = &changes[&("newly refused", "tier".to_owned(), "drop".to_owned())];
        assert_eq!((refused.calls, refused.lost, refused.approved), (1, 1, 1));
        assert_eq!(changes.len(), 2, "the other one is asked for now, and would be refused");
        assert!(backtest(&rows[..1], Policy::default(), asks, 1).expect("good rows").is_empty(), "it was answered");
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
        let new = crate::policy::compile(
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
