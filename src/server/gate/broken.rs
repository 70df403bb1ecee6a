//! Deliberately broken invariants of the gate, for tests: see `src/store/broken.rs`.

use callgate_core::domain::{
    call::Proposal, finding::Decision, fingerprint::Fingerprint, ids::TenantId, verdict::Verdict,
};
use callgate_store::is_broken;

/// No call is known again.
pub(super) fn forget_known_calls(mut proposals: Vec<Proposal>) -> Vec<Proposal> {
    if is_broken("doubled") {
        for proposal in &mut proposals {
            let request = &proposal.request;
            let names = format!("{} {}", request.session.as_str(), request.call_id.as_str());
            proposal.fingerprint = Fingerprint::of(&request.tool, &names);
        }
    }
    proposals
}

/// A permit that is asked for again is a denial.
pub(super) fn deny_repeated_permits(mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    if is_broken("answers") {
        for verdict in verdicts.iter_mut().filter(|verdict| verdict.replayed && verdict.permit.is_some()) {
            verdict.permit = None;
            verdict.decision = Decision::Deny;
        }
    }
    verdicts
}

/// The first two tenants are taken for each other.
pub(super) fn looked_at(tenant: TenantId) -> TenantId {
    if is_broken("leaked") { TenantId(3 - tenant.0) } else { tenant }
}

/// Every limit of calls has one digit more.
pub(super) fn read(policy: String) -> String {
    if is_broken("budget") { policy.replace("max_tool_calls: ", "max_tool_calls: 9") } else { policy }
}
