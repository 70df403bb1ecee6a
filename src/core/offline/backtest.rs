//! Backtest: differences between two policies on recorded calls. Every recorded outcome is folded, whatever the
//! verdict, because the recorded later calls depend on it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    judge::{CallAssessment, OfflineJudge, RecordedComparison},
    trace::TraceRow,
};
use crate::{
    domain::{
        difference::{DifferenceKind, Example},
        finding::Decision,
        ids::SessionId,
    },
    policy::Policy,
};

/// Maximum number of examples over all changes: the number of changes grows with that of tools.
const EXAMPLES_MAX: usize = 5_000;

/// Change of a decision, with its count.
#[derive(Debug, Default)]
pub struct DecisionChange {
    /// Number of calls.
    pub calls: u64,
    /// Newly refused, although the call succeeded with a new result.
    pub lost: u64,
    /// Newly refused, although a person approved the call and it succeeded.
    pub approved: u64,
    /// The first examples.
    pub examples: Vec<Example>,
}

/// Kind of the difference, deciding rule, tool.
pub type ChangeKey = (DifferenceKind, String, String);

/// All changes.
pub type Changes = BTreeMap<ChangeKey, DecisionChange>;

/// Number of sessions of the calls.
#[must_use]
pub fn session_count(rows: &[TraceRow]) -> usize {
    rows.iter().map(|row| &row.trace).collect::<BTreeSet<_>>().len()
}

/// Judges the calls by both policies; keeps at most `examples_max` examples of each change.
///
/// # Errors
/// A call that cannot be judged, by its session and id.
pub fn backtest(rows: &[TraceRow], old: Policy, new: Policy, examples_max: usize) -> Result<Changes, String> {
    let mut backtest = Backtest::new(old, new, examples_max);
    for row in rows {
        backtest.judge(row).map_err(|problem| format!("{} {}: {problem}", row.trace, row.call_id))?;
    }
    Ok(backtest.changes)
}

/// A comparison of two policies on the same calls.
#[derive(Debug)]
pub struct Backtest {
    old: OfflineJudge,
    new: OfflineJudge,
    examples_max: usize,
    examples: usize,
    /// Changes.
    pub changes: Changes,
    /// Number of calls by old and new decision.
    pub decisions: BTreeMap<(Decision, Decision), u64>,
}

impl Backtest {
    /// Keeps at most `examples_max` examples of each change.
    #[must_use]
    pub fn new(old: Policy, new: Policy, examples_max: usize) -> Self {
        Self {
            old: OfflineJudge::new(old, false),
            new: OfflineJudge::new(new, false),
            examples_max,
            examples: 0,
            changes: Changes::new(),
            decisions: BTreeMap::new(),
        }
    }

    /// Judges a call by both policies; returns both decisions.
    ///
    /// # Errors
    /// The problem of the row, which is not counted.
    pub fn judge(&mut self, row: &TraceRow) -> Result<(Decision, Decision), String> {
        // Both have to have seen it.
        let (before, after) = (self.old.judge(row), self.new.judge(row));
        let (before, after) = (before?, after?);
        let decisions = (apply_approval(row, before.applied_decision()), apply_approval(row, after.applied_decision()));
        *self.decisions.entry(decisions).or_default() += 1;
        let Some(what) = classify_change(decisions.0, decisions.1) else { return Ok(decisions) };
        let decides = if decisions.1 == Decision::Allow { before.decider() } else { after.decider() };
        let rule = decides.map_or_else(String::new, |winner| winner.rule.to_string());
        let change = self.changes.entry((what, rule, row.tool.to_string())).or_default();
        change.calls += 1;
        let is_lost = what == DifferenceKind::NewlyRefused && brought_something(row, &after);
        change.lost += u64::from(is_lost);
        change.approved += u64::from(is_lost && row.approved);
        if change.examples.len() < self.examples_max && self.examples < EXAMPLES_MAX {
            self.examples += 1;
            change.examples.push(Example {
                session: row.trace.clone(),
                call_id: row.call_id.clone(),
                decisions,
                message: decides.map(|winner| winner.message.clone()).unwrap_or_default(),
            });
        }
        Ok(decisions)
    }

    /// Drops a call tree that gets no more calls.
    pub fn close(&mut self, root: &SessionId) {
        self.old.close(root);
        self.new.close(root);
    }
}

/// The decision under a recorded approval: ASK becomes ALLOW, for either policy.
#[must_use]
pub fn apply_approval(row: &TraceRow, decision: Decision) -> Decision {
    if row.approved && decision == Decision::Ask { Decision::Allow } else { decision }
}

fn classify_change(before: Decision, after: Decision) -> Option<DifferenceKind> {
    match (before, after) {
        (before, after) if before == after => None,
        (Decision::Allow, Decision::Ask) => Some(DifferenceKind::NewlyAsked),
        (Decision::Allow, Decision::Wait) => Some(DifferenceKind::NewlyDelayed),
        (Decision::Allow, _) => Some(DifferenceKind::NewlyRefused),
        (_, Decision::Allow) => Some(DifferenceKind::NewlyAllowed),
        _ => Some(DifferenceKind::OtherwiseRefused),
    }
}

fn brought_something(row: &TraceRow, assessed: &CallAssessment) -> bool {
    row.result.as_ref().is_some_and(|result| !result.is_error) && assessed.compared != RecordedComparison::Same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_refusals_are_counted_by_their_former_results() {
        let row = |seq, tool, text| TraceRow::success("s", seq, tool, text);
        let rows = [row(0, "look", "a"), row(1, "look", "a"), row(2, "drop", "gone")];
        let new = crate::policy::compile(
            "policy_engine: {tool_schemas: {look: {effect: read, risk_level: LOW}, drop: {risk_level: HIGH}}}",
        );
        let changes = backtest(&rows, Policy::default(), new.expect("a good policy"), 1).expect("good rows");
        let refused = &changes[&(DifferenceKind::NewlyRefused, "same_call".to_owned(), "look".to_owned())];
        assert_eq!((refused.calls, refused.lost), (1, 0));
        assert!(refused.examples[0].to_string().starts_with("s 1: ALLOW -> REUSE"), "{:?}", refused.examples);
        let asked = &changes[&(DifferenceKind::NewlyAsked, "tier".to_owned(), "drop".to_owned())];
        assert_eq!((asked.calls, asked.lost), (1, 0));
    }

    #[test]
    fn new_refusals_of_approved_calls_are_counted() {
        let policy = |text: &str| crate::policy::compile(text).expect("a good policy");
        let asks = policy("policy_engine: {tool_schemas: {drop: {risk_level: HIGH}}}");
        let denies = policy(
            "policy_engine: {authorization: {tiers: [{name: no, pattern: drop, action: deny}]},
               tool_schemas: {drop: {effect: write, idempotent: true}}}",
        );
        let mut rows = [TraceRow::success("s", 0, "drop", "gone"), TraceRow::success("t", 0, "drop", "gone")];
        rows[0].approved = true;
        let changes = backtest(&rows, asks.clone(), denies, 1).expect("good rows");
        let refused = &changes[&(DifferenceKind::NewlyRefused, "tier".to_owned(), "drop".to_owned())];
        assert_eq!((refused.calls, refused.lost, refused.approved), (1, 1, 1));
        assert_eq!(changes.len(), 2, "the other one is asked for now, and would be refused");
        assert!(backtest(&rows[..1], Policy::default(), asks, 1).expect("good rows").is_empty(), "it was answered");
    }

    #[test]
    fn an_exported_read_is_judged_by_its_witnesses() {
        let policy = crate::policy::compile("policy_engine: {tool_schemas: {page: {effect: read, fresh_ms: 0}}}");
        let mut judge = OfflineJudge::new(policy.expect("a good policy"), false);
        let mut decide = |seq, state: Option<&str>| {
            let witness = state.map(Into::into);
            let row =
                TraceRow { witness_after: witness.clone(), witness, ..TraceRow::success("s", seq, "page", "text") };
            judge.judge(&row).expect("a good row").decision
        };
        assert_eq!(decide(0, Some("v1")), Decision::Allow);
        assert_eq!(decide(1, Some("v1")), Decision::Reuse);
        assert_eq!(decide(2, Some("v2")), Decision::Allow);
        assert_eq!(decide(3, None), Decision::Allow);
    }

    #[test]
    fn refused_calls_do_not_count_as_running_and_a_tree_is_judged_as_one() {
        let mut rows: Vec<TraceRow> = (0..300).map(|seq| TraceRow::success("s", seq, "drop", "")).collect();
        for row in &mut rows {
            (row.result, row.refused) = (None, true);
        }
        let mut child = TraceRow::success("child", 300, "drop", "");
        (child.root, child.justification) = (Some(rows[0].trace.clone()), Some("because".to_owned()));
        rows.push(child);
        let new = crate::policy::compile(
            "policy_engine: {authorization: {tiers: [
               {name: drops, pattern: drop, action: per_conversation_grant, ceiling: 301, require_reason: true}]}}",
        );
        let new = new.expect("a good policy");
        let mut judge = OfflineJudge::new(new, false);
        let judged: Vec<CallAssessment> = rows.iter().map(|row| judge.judge(row).expect("a good row")).collect();
        assert_eq!(judged[0].decision, Decision::Deny, "it gives no reason");
        let last = judged.last().expect("some");
        assert_eq!(last.decision, Decision::Allow, "{:?}", last.verdict.findings);
        assert_eq!(judge.into_summary().sessions, 1, "one tree");
    }
}
