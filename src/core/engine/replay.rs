//! Stored verdicts for repeated call_ids.

use super::{SharedState, bookings::is_tool_disabled};
use crate::{
    domain::{
        accounting::Books,
        budget::BudgetSpend,
        call::{Call, CallStatus, Proposal},
        finding::Decision,
        reason::Reason,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    policy::Policy,
    rules::{RuleContext, halted},
};

/// True when the same call_id gets the stored verdict. A refusal for an unknown outcome holds until that is settled.
pub(super) fn is_final(call: &Call, now: Timestamp) -> bool {
    let is_unsettled = || call.findings.iter().any(|f| f.enforced && f.reason == Reason::OutcomeUnknown);
    match call.standing(now) {
        CallStatus::InFlight => true,
        CallStatus::Refused if call.decision == Decision::Deny => !is_unsettled(),
        CallStatus::Refused => matches!(call.decision, Decision::Reuse | Decision::Stop),
        _ => false,
    }
}

/// The stored verdict.
pub(super) fn replay(
    policy: &Policy,
    tree: &CallTree,
    shared: &SharedState,
    proposal: &Proposal,
    call: &Call,
    now: Timestamp,
) -> Verdict {
    let session = tree.sessions.get(&proposal.request.session).map(Box::as_ref);
    let agent = proposal.request.agent.as_ref();
    let books = Books::of(tree, session, agent, &call.tool, &shared.counters, now);
    let left = books.list_remaining(policy.rules.get(), &BudgetSpend::default());
    Verdict {
        decision: call.decision,
        would: call.findings.iter().map(|finding| finding.decision).max().unwrap_or(Decision::Allow),
        findings: call.findings.to_vec(),
        permit: call.permit.clone(),
        approval: call.approval.clone(),
        policy: call.policy.clone(),
        tools_disabled: is_tool_disabled(policy, &proposal.spec, call.decision, &left),
        left,
        replayed: true,
        fingerprint: call.fingerprint,
        seq: call.seq,
        at: call.at,
    }
}

/// The stored verdict of an open permit, unless a halt is active: a repeated request has not begun its execution, or
/// would begin anew. The lease stays, and a report is accepted.
pub(super) fn refuse_if_halted(policy: &Policy, cx: &RuleContext<'_>, stored: Verdict) -> Verdict {
    let Some(mut halt) = policy.rules.find(halted::RULE.id).and_then(|slot| slot.check(cx)) else { return stored };
    halt.enforced &= policy.holds(&halt.rule, &cx.proposal.spec);
    if !halt.enforced {
        return stored;
    }
    let tools_disabled = halt.decision == Decision::Stop;
    Verdict {
        decision: halt.decision,
        would: halt.decision,
        findings: vec![halt],
        permit: None,
        tools_disabled,
        ..stored
    }
}
