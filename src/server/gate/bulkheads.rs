//! Turns of calls under limits of calls in flight: claimed before a judgment, released when the call ends or is not
//! permitted.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Decisions, NoAnswer};
use callgate_core::{
    domain::{
        bulkhead::{BulkheadTurn, FullBulkhead},
        call::Proposal,
        event::SettledEvent,
        ids::{CallId, SessionId, TenantId, ToolName},
        outcome::OutcomeStatus,
        verdict::Verdict,
    },
    policy::Policy,
    rules::bulkhead,
};
use callgate_store::{DecisionStore, StoreError};

/// Time by which a lease outlives its call's, in milliseconds: the permit is younger than the claim.
const LEASE_MARGIN_MS: u64 = 10_000;

/// The turn of a call under all limits that match it. Dropped before the verdict is stored, new leases are released:
/// after an error, or when the caller has left.
#[derive(Debug)]
pub(super) struct ClaimedTurn {
    /// The full bulkhead before which the call is queued.
    pub(super) full: Option<FullBulkhead>,
    leases: Option<NewLeases>,
}

/// New leases of a call.
#[derive(Debug)]
struct NewLeases {
    store: Arc<dyn DecisionStore>,
    tenant: TenantId,
    session: SessionId,
    call_id: CallId,
}

impl NewLeases {
    async fn release(self) {
        logged(self.store.release_bulkheads(self.tenant, &self.session, &self.call_id).await);
    }
}

impl ClaimedTurn {
    /// Keeps the leases of a permitted call, and releases those of another one.
    pub(super) async fn judged(mut self, verdict: &Verdict) {
        match verdict.permit {
            Some(_) => drop(self.leases.take()),
            None => self.release().await,
        }
    }

    /// Releases new leases.
    pub(super) async fn release(mut self) {
        if let Some(leases) = self.leases.take() {
            leases.release().await;
        }
    }
}

impl Drop for ClaimedTurn {
    fn drop(&mut self) {
        if let (Some(leases), Ok(runtime)) = (self.leases.take(), Handle::try_current()) {
            runtime.spawn(leases.release());
        }
    }
}

impl Decisions {
    /// Claims the turn of each proposal under the limits that match it: one read for each. A call that is queued at one
    /// limit holds no lease of another.
    pub(super) async fn claim_turns(
        &self,
        policy: &Policy,
        proposals: &[Proposal],
    ) -> Result<Vec<ClaimedTurn>, NoAnswer> {
        let mut turns = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            turns.push(self.claim_turn(policy, proposal).await?);
        }
        Ok(turns)
    }

    async fn claim_turn(&self, policy: &Policy, proposal: &Proposal) -> Result<ClaimedTurn, NoAnswer> {
        let request = &proposal.request;
        let mut turn = ClaimedTurn { full: None, leases: None };
        for (claim, full) in bulkhead::claims(&policy.rules, proposal, self.store.now(), LEASE_MARGIN_MS) {
            match self.store.claim_bulkhead(request.tenant, &claim).await? {
                BulkheadTurn::InFlight { is_new: false } => {}
                BulkheadTurn::InFlight { is_new: true } => {
                    turn.leases = Some(NewLeases {
                        store: Arc::clone(&self.store),
                        tenant: request.tenant,
                        session: request.session.clone(),
                        call_id: request.call_id.clone(),
                    });
                }
                BulkheadTurn::Queued { place } => {
                    turn.full = Some(FullBulkhead { place, wait_ms: claim.wait_ms(place), ..full });
                    if let Some(leases) = turn.leases.take() {
                        leases.release().await;
                    }
                    break;
                }
            }
        }
        Ok(turn)
    }

    /// Releases the leases of a call that has ended, or extends those of one that still runs. A store that does not
    /// answer leaves them to expire.
    pub(super) async fn end_turn(&self, policy: &Policy, tenant: TenantId, tool: &ToolName, settled: &SettledEvent) {
        if !policy.rules.get::<bulkhead::Params>().limits(tool.as_str()) {
            return;
        }
        let (session, call_id) = (&settled.session, &settled.call_id);
        logged(match (settled.status, settled.lease_until) {
            (OutcomeStatus::Running, Some(until)) => {
                self.store.extend_bulkheads(tenant, session, call_id, until.plus_ms(LEASE_MARGIN_MS)).await
            }
            (OutcomeStatus::Running, None) => Ok(()),
            _ => self.store.release_bulkheads(tenant, session, call_id).await,
        });
    }
}

fn logged(ended: Result<(), StoreError>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "the lease of a call in flight was not ended; it expires by itself");
    }
}
