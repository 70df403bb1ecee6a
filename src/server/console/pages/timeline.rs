//! A call in short, as lists of calls and its own page show it.

use crate::console::labels::{self, StyledWord};
use callgate_proto::v1::{CallEntry, Decision, Finding, FollowUpKind};

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

#[cfg(test)]
mod tests {
    use super::*;

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
