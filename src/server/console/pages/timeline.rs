//! Calls as a timeline: those of one session together, and in them those of one model turn.

use crate::console::labels::{self, StyledWord};
use callgate_proto::v1::{CallEntry, Decision, Finding, FollowUpKind};

/// Calls in a row of one session.
pub(super) struct Segment {
    pub(super) session: String,
    pub(super) agent: String,
    /// Depth of the indent, at most `DEPTH_MAX`.
    pub(super) depth: u32,
    pub(super) turns: Vec<Vec<Step>>,
}

/// One call.
pub(super) struct Step {
    pub(super) call: CallEntry,
    pub(super) path: String,
    pub(super) decision: StyledWord,
    pub(super) outcome: Option<StyledWord>,
    pub(super) failure: String,
    pub(super) took: String,
    pub(super) cost: u64,
    pub(super) notes: Vec<Note>,
    /// The call that it follows up on, with where that is and how it follows.
    pub(super) follows: Option<(String, String, String)>,
}

/// Finding of a rule.
pub(super) struct Note {
    pub(super) rule: String,
    pub(super) word: StyledWord,
    pub(super) level: Option<StyledWord>,
    pub(super) count: Option<u32>,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) enforced: bool,
    /// It decided.
    pub(super) decides: bool,
}

impl Note {
    /// Its severity: of a loop by its level, which a permit does not have.
    pub(super) fn class(&self) -> &'static str {
        self.level.unwrap_or(self.word).class
    }
}

/// The deepest indent.
const DEPTH_MAX: u32 = 6;

/// Path of a call's page.
pub(super) fn path(session: &str, call_id: &str) -> String {
    let session = super::session::path(session).replacen("/sessions/", "/calls/", 1);
    format!("{session}/{}", super::session::encode_segment(call_id))
}

/// Findings of the rules, in their order.
pub(super) fn notes(findings: &[Finding], decision: Decision, rule: &str, reason: &str) -> Vec<Note> {
    let mut is_open = true;
    let note = |finding: &Finding| {
        let decides = is_open && decision != Decision::Allow && finding.rule == rule && finding.reason == reason;
        is_open &= !decides;
        Note {
            word: labels::decision(finding.decision()),
            level: labels::level(finding.level()),
            rule: finding.rule.clone(),
            count: finding.count,
            reason: finding.reason.clone(),
            message: finding.message.clone(),
            enforced: finding.enforced,
            decides,
        }
    };
    findings.iter().map(note).collect()
}

impl Step {
    pub(super) fn new(call: CallEntry) -> Self {
        let how = match call.follow_up() {
            FollowUpKind::Unspecified => None,
            FollowUpKind::Same => Some("retry of"),
            FollowUpKind::Near => Some("near duplicate of"),
            FollowUpKind::Changed => Some("other arguments than"),
        };
        Self {
            path: path(&call.session_id, &call.call_id),
            decision: labels::decision(call.decision()),
            outcome: labels::status(call.status()),
            failure: labels::failure(call.failure()),
            took: labels::span(call.duration.as_ref()),
            cost: call.usage.as_ref().map_or(0, |usage| usage.cost_micros),
            notes: notes(&call.findings, call.decision(), &call.rule, &call.reason),
            follows: how.map(|how| {
                let waited = labels::span(call.waited.as_ref());
                (
                    call.retry_of_call_id.clone(),
                    path(&call.session_id, &call.retry_of_call_id),
                    format!("{waited} later, {how}"),
                )
            }),
            call,
        }
    }
}

pub(super) fn segments(calls: Vec<CallEntry>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for call in calls {
        let is_next = segments.last().is_none_or(|last| last.session != call.session_id);
        if is_next {
            segments.push(Segment {
                session: call.session_id.clone(),
                agent: call.agent_id.clone(),
                depth: call.depth.min(DEPTH_MAX),
                turns: Vec::new(),
            });
        }
        let Some(segment) = segments.last_mut() else { continue };
        let batch = call.batch;
        let step = Step::new(call);
        match segment.turns.last_mut() {
            Some(turn) if turn.first().is_some_and(|first| first.call.batch == batch) => turn.push(step),
            _ => segment.turns.push(vec![step]),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(session: &str, batch: u64, seq: u64) -> CallEntry {
        CallEntry { session_id: session.into(), batch, seq, call_id: format!("c{seq}"), ..CallEntry::default() }
    }

    #[test]
    fn calls_of_one_turn_stand_together_and_so_do_those_of_a_session() {
        let calls = vec![call("a", 1, 1), call("a", 1, 2), call("a", 3, 3), call("b", 4, 4), call("a", 5, 5)];
        let told: Vec<(String, Vec<usize>)> = segments(calls)
            .into_iter()
            .map(|segment| (segment.session, segment.turns.iter().map(Vec::len).collect()))
            .collect();
        assert_eq!(told, [("a".into(), vec![2, 1]), ("b".into(), vec![1]), ("a".into(), vec![1])]);
    }

    #[test]
    fn one_finding_decides_and_a_warning_with_a_permit_does_not() {
        let finding = |rule: &str| Finding { rule: rule.into(), reason: "cycle".into(), ..Finding::default() };
        let decides = |decision| {
            let notes = notes(&[finding("a"), finding("b"), finding("b")], decision, "b", "cycle");
            notes.iter().map(|note| note.decides).collect::<Vec<_>>()
        };
        assert_eq!(decides(Decision::Deny), [false, true, false]);
        assert_eq!(decides(Decision::Allow), [false; 3]);
    }
}
