//! Bulk approval: the requests that an approver may approve together with others.

use crate::{
    domain::{
        effect::Effect,
        finding::{Decision, Finding},
        ids::ToolName,
        rejection::BulkRejection,
    },
    policy::Policy,
    rules::tier,
};

/// A requested call, as far as bulk approval depends on it.
#[derive(Debug, Clone, Copy)]
pub struct BulkSubject<'a> {
    pub effect: &'a Effect,
    pub findings: &'a [Finding],
    /// True when the arguments may hold an amount.
    pub may_have_amount: bool,
}

/// Cause for which a request cannot be approved together with others under a policy; none where it can. Each rule that
/// requires the approval must permit it, and `tier` is the only one that can.
#[must_use]
pub fn objection(policy: &Policy, tool: &ToolName, subject: &BulkSubject<'_>) -> Option<BulkRejection> {
    let mut asking = subject.findings.iter().filter(|finding| finding.decision == Decision::Ask && finding.enforced);
    if policy.route(tool).people > 1 {
        return Some(BulkRejection::TwoPeople);
    }
    if subject.effect.once && subject.may_have_amount {
        return Some(BulkRejection::OnceWithAmount);
    }
    let is_permitted = policy.rules.get::<tier::Params>().bulk_approves(tool.as_str());
    (!is_permitted || asking.any(|finding| finding.rule != tier::RULE.id)).then_some(BulkRejection::NotPermitted)
}
