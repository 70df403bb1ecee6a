//! Bulk approval: the requests that an approver may approve together with others.

use crate::{
    domain::{
        effect::Effect,
        finding::{self, Finding},
        ids::ToolName,
        reason::Reason,
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
/// requires the approval must permit it, and `tier` is the only one that can, unless it could not judge a condition.
#[must_use]
pub fn objection(policy: &Policy, tool: &ToolName, subject: &BulkSubject<'_>) -> Option<BulkRejection> {
    if policy.route(tool).people > 1 {
        return Some(BulkRejection::TwoPeople);
    }
    if subject.effect.once && subject.may_have_amount {
        return Some(BulkRejection::OnceWithAmount);
    }
    let is_permitted = policy.rules.get::<tier::Params>().bulk_approves(tool.as_str());
    let is_others = |finding: &Finding| finding.rule != tier::RULE.id || finding.reason == Reason::PolicyFault;
    (!is_permitted || finding::asking(subject.findings).any(is_others)).then_some(BulkRejection::NotPermitted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::finding::Decision, policy::compile, rules::same_call};

    #[test]
    fn bulk_approval_is_for_requests_of_the_tier_alone() {
        let policy = compile(
            "policy_engine: {authorization: {tiers: [{name: all, pattern: '*', action: hitl, bulk_approve: true}]}}",
        );
        let policy = policy.expect("a good policy");
        let tool = ToolName::parse("tool", "send_mail").expect("a name");
        let asks = |rule, reason| Finding::new(rule, Decision::Ask, reason, "asked");
        let by_tier = asks(tier::RULE.id, Reason::ApprovalRequired);
        let repeated = asks(same_call::RULE.id, Reason::RepeatedSuccess);
        for (further, objection_expected) in [
            (None, None),
            (Some(repeated.clone()), Some(BulkRejection::NotPermitted)),
            (Some(Finding { enforced: false, ..repeated.clone() }), None),
            (Some(Finding { decision: Decision::Deny, ..repeated }), None),
            (Some(asks(tier::RULE.id, Reason::PolicyFault)), Some(BulkRejection::NotPermitted)),
        ] {
            let findings: Vec<Finding> = further.into_iter().chain([by_tier.clone()]).collect();
            let subject = BulkSubject { effect: &Effect::default(), findings: &findings, may_have_amount: false };
            assert_eq!(objection(&policy, &tool, &subject), objection_expected, "{findings:?}");
        }
    }
}
