//! Verdict: the response to a request.

use std::sync::Arc;

use super::{
    budget::RemainingBudget,
    call::{Approval, Permit},
    finding::{Decision, Finding, Level},
    fingerprint::Fingerprint,
    reason::Reason,
    time::Timestamp,
};

/// The strictest finding with all others, and the permit of an ALLOW.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Applied decision.
    pub decision: Decision,
    /// Decision of the policy; differs from `decision` in shadow mode only.
    pub would: Decision,
    /// All findings, in the order of the rules.
    pub findings: Vec<Finding>,
    /// For ALLOW: the permit.
    pub permit: Option<Permit>,
    /// For ASK: the approval request.
    pub approval: Option<Box<Approval>>,
    /// The policy that judged, by its version.
    pub policy: Arc<str>,
    /// Remainder of each applicable limit, after this call.
    pub left: Vec<RemainingBudget>,
    /// True when every further tool call in this scope will be refused; the model should give its final answer.
    pub tools_disabled: bool,
    /// True for the stored verdict of the same call_id.
    pub replayed: bool,
    /// Fingerprint of the call.
    pub fingerprint: Fingerprint,
    /// `seq` of the judgment.
    pub seq: u64,
    /// Time of the judgment.
    pub at: Timestamp,
}

impl Verdict {
    /// The deciding finding: the strictest, among equals the first in the rules' order. None for a plain ALLOW.
    #[must_use]
    pub fn winner(&self) -> Option<&Finding> {
        winner(&self.findings)
    }

    /// The finding behind the applied decision; for an ALLOW the warning of the model. Shadowed findings are only among
    /// `findings`.
    #[must_use]
    pub fn decided_by(&self) -> Option<&Finding> {
        let decides = |finding: &&Finding| finding.decision == self.decision && finding.enforced;
        self.findings.iter().find(decides)
    }

    /// True when shadow mode did not soften the decision.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.decision == self.would
    }

    /// Hint for the model's next turn: all warnings for an ALLOW or WAIT; for a refusal only that a budget is nearly
    /// exhausted, unless tools are disabled. A refusal has a next step of its own, and further warnings would add
    /// others.
    #[must_use]
    pub fn context_hint(&self) -> Option<String> {
        let refused_for = self
            .winner()
            .filter(|_| !matches!(self.decision, Decision::Allow | Decision::Wait))
            .map(|winner| winner.reason);
        let warns_of_budget = |finding: &Finding| {
            let is_budget = matches!(finding.reason, Reason::StepBudgetExceeded | Reason::BudgetExceeded);
            is_budget && !self.tools_disabled
        };
        let hints: Vec<&str> = self
            .findings
            .iter()
            .filter(|finding| finding.decision == Decision::Allow && finding.enforced)
            .filter(|finding| refused_for.is_none_or(|reason| reason != finding.reason && warns_of_budget(finding)))
            .map(|finding| finding.message.as_str())
            .collect();
        (!hints.is_empty()).then(|| hints.join(" "))
    }

    /// The loop finding behind a refusal, if any.
    #[must_use]
    pub fn loop_broken(&self) -> Option<&Finding> {
        self.findings.iter().find(|f| f.enforced && f.level.is_some_and(|level| level >= Level::Critical))
    }

    /// The longest wait over all WAIT findings, or over all REUSE or DENY ones if each has one, in milliseconds.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        let waits = self.findings.iter().filter(|finding| finding.decision == self.decision && finding.enforced);
        match self.decision {
            Decision::Wait | Decision::Reuse => waits.filter_map(|finding| finding.retry_after_ms).max(),
            Decision::Deny => waits.map(|finding| finding.retry_after_ms).try_fold(0, |most, ms| Some(ms?.max(most))),
            _ => None,
        }
    }
}

/// The strictest finding; among equals the first.
#[must_use]
pub fn winner(findings: &[Finding]) -> Option<&Finding> {
    // max_by_key returns the last of equals, so iterate backwards.
    findings.iter().rev().max_by_key(|finding| finding.decision)
}
