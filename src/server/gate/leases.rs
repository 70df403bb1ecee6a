//! Expiry of leases: settles calls without a report.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Decisions, GateError, NoAnswer};
use callgate_core::domain::{
    ids::{CallId, SessionId, TenantId},
    outcome::OutcomeStatus,
    report::OutcomeReport,
    time::Timestamp,
    tree::CallTree,
};
use callgate_store::{DueTree, Slot};

/// Trees that are looked into, or calls that are settled, at once.
const AT_ONCE: usize = 64;

/// A call with an expired lease.
struct RunOut {
    tenant: TenantId,
    session: SessionId,
    call_id: CallId,
}

impl Decisions {
    /// Settles as unknown the calls without a report whose lease expired before `now`; returns their count. Concurrent
    /// replicas take different trees.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read or settled; a run 20 s later finds them again.
    pub async fn expire_leases(self: &Arc<Self>, now: Timestamp) -> Result<usize, NoAnswer> {
        #[cfg(feature = "break-invariants")]
        if callgate_store::is_broken("open") {
            return Ok(0);
        }
        let mut settled = 0;
        loop {
            let due = self.store.take_due(now).await?;
            let looks = due.trees.into_iter().map(|tree| Arc::clone(self).look_after(tree, now));
            let run_out = at_once(looks).await?.into_iter().flatten();
            let reports = run_out.map(|call| Arc::clone(self).expire(call));
            settled += at_once(reports).await?.into_iter().filter(|is_settled| *is_settled).count();
            if !due.is_full {
                return Ok(settled);
            }
        }
    }

    /// The calls of a tree with an expired lease. Where there are none, the tree is put off until the first one may.
    async fn look_after(self: Arc<Self>, due: DueTree, now: Timestamp) -> Result<Vec<RunOut>, NoAnswer> {
        let slot = match self.slot_as_of(&due).await {
            Ok(slot) => slot,
            Err(error) => return later(due.tenant, &due.root, error, Vec::new()),
        };
        let looked = slot.advance(|tree| (run_out(tree, now), tree.first_lease_end(), tree.version));
        // A change was a conflict: the next run finds the tree as it is.
        let Some((run_out, first_end, version)) = looked else { return Ok(Vec::new()) };
        if run_out.is_empty() && version == due.version {
            self.store.put_off(&due, first_end).await?;
        }
        Ok(run_out)
    }

    /// The tree as it was when it was taken on, or later.
    async fn slot_as_of(&self, due: &DueTree) -> Result<Arc<Slot>, NoAnswer> {
        let slot = self.slot_of(due.tenant, &due.root).await?;
        if slot.advance(|tree| tree.version >= due.version) == Some(true) {
            return Ok(slot);
        }
        self.server.slots.invalidate(due.tenant, &slot);
        self.slot_of(due.tenant, &due.root).await
    }

    async fn expire(self: Arc<Self>, call: RunOut) -> Result<bool, NoAnswer> {
        let session = call.session.clone();
        let report =
            OutcomeReport { by_lease: true, ..OutcomeReport::new(call.session, call.call_id, OutcomeStatus::Unknown) };
        // A late report that comes in between goes first; then there is nothing left to settle.
        match self.record(call.tenant, report, None).await {
            Ok(answer) => Ok(!answer.replayed),
            Err(GateError::Rejected(_)) => Ok(false),
            Err(GateError::NoAnswer(error)) => later(call.tenant, &session, error, false),
        }
    }
}

/// Skips a tree or a call that cannot be settled now: the next round finds it again. Without a database the round ends.
fn later<T>(tenant: TenantId, session: &SessionId, error: NoAnswer, nothing: T) -> Result<T, NoAnswer> {
    match error {
        NoAnswer::OutOfReach(_) | NoAnswer::NeedsDatabase | NoAnswer::ShuttingDown => return Err(error),
        NoAnswer::Fault(why) => {
            let (tenant, session) = (tenant.0, session.as_str());
            tracing::error!(tenant, session, "a call that was never recorded cannot be settled: {why}");
        }
        // Agents go first under overload; a deleted tenant's open calls go with it; and a replica that can read the
        // key or the policy settles the tree.
        NoAnswer::Overloaded(_)
        | NoAnswer::Crowded(_)
        | NoAnswer::Contention
        | NoAnswer::Quota(_)
        | NoAnswer::NotServed(_)
        | NoAnswer::TenantUnknown
        | NoAnswer::PolicyUnreadable
        | NoAnswer::KeyMissing(_) => {}
    }
    Ok(nothing)
}

fn run_out(tree: &CallTree, now: Timestamp) -> Vec<RunOut> {
    let calls = tree.sessions.iter().flat_map(|(id, session)| session.calls.iter().map(move |call| (id, call)));
    let ran_out = calls
        .filter(|(_, call)| call.is_open() && call.permit.as_ref().is_some_and(|permit| permit.lease_until <= now));
    let run_out = ran_out.map(|(session, call)| RunOut {
        tenant: tree.tenant,
        session: session.clone(),
        call_id: call.call_id.clone(),
    });
    run_out.collect()
}

/// Does all of it, so much at a time; the first error when there was one.
async fn at_once<T, F>(work: impl Iterator<Item = F>) -> Result<Vec<T>, NoAnswer>
where
    T: Send + 'static,
    F: Future<Output = Result<T, NoAnswer>> + Send + 'static,
{
    let (mut running, mut done) = (JoinSet::new(), Vec::new());
    let stopped = || NoAnswer::Fault("settling calls without a report has panicked".to_owned());
    for one in work {
        if running.len() >= AT_ONCE
            && let Some(ended) = running.join_next().await
        {
            done.push(ended.map_err(|_| stopped())??);
        }
        running.spawn(one);
    }
    while let Some(ended) = running.join_next().await {
        done.push(ended.map_err(|_| stopped())??);
    }
    Ok(done)
}
