//! The answer to a request.

use std::sync::Arc;

use super::{
    budget::Left,
    call::{Approval, Permit},
    finding::{Decision, Finding, Level},
    fingerprint::Fingerprint,
    reason::Reason,
    time::Timestamp,
};

/// The strictest finding, with all the others and what goes with an ALLOW.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What holds.
    pub decision: Decision,
    /// What the policy would say; differs from `decision` in shadow mode only.
    pub would: Decision,
    /// Everything the rules had to say, in their order.
    pub findings: Vec<Finding>,
    /// For ALLOW: the permission to execute once.
    pub permit: Option<Permit>,
    /// For ASK: the question to a person.
    pub approval: Option<Box<Approval>>,
    /// The policy that judged, by its version.
    pub policy: Arc<str>,
    /// What is left of each limit that applies, after this call.
    pub left: Vec<Left>,
    /// True when no further tool call will be let through in this scope: give the final answer.
    pub tools_disabled: bool,
    /// True when this is the answer given before to the same call_id.
    pub replayed: bool,
    /// The call, as it will be known again.
    pub fingerprint: Fingerprint,
    /// The place of the judgement among its tree's events.
    pub seq: u64,
    /// When it was judged.
    pub at: Timestamp,
}

impl Verdict {
    /// The finding that decided: the strictest, and the first in the rules' order among equals. None for a plain ALLOW.
    #[must_use]
    pub fn winner(&self) -> Option<&Finding> {
        winner(&self.findings)
    }

    /// The finding behind the decision that holds: for an ALLOW a warning that the model is told. What only would have
    /// decided (shadow) is among the findings.
    #[must_use]
    pub fn decided_by(&self) -> Option<&Finding> {
        let decides = |finding: &&Finding| finding.decision == self.decision && finding.enforced;
        self.findings.iter().find(decides)
    }

    /// True when the decision is the policy's, not softened by shadow mode.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.decision == self.would
    }

    /// What the model should see next turn: for an ALLOW and a WAIT all that was said, for a refusal that a budget is
    /// nearly used, unless tools are disabled. A refusal has its own next step, and other warnings would add another.
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

    /// The loop that got the call refused, if one did.
    #[must_use]
    pub fn loop_broken(&self) -> Option<&Finding> {
        self.findings.iter().find(|f| f.enforced && f.level.is_some_and(|level| level >= Level::Critical))
    }

    /// The longest wait over all WAIT findings, or over all REUSE or DENY ones where each promises another look, in
    /// milliseconds.
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
    // max_by_key keeps the last of equals, so look from the back.
    findings.iter().rev().max_by_key(|finding| finding.decision)
}
