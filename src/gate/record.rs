//! Taking in what came of a call: the same loop as for a question.

use std::sync::Arc;

use tokio::time::sleep;

use super::{Gate, GateError, PAUSE, TRIES_MAX};
use crate::{
    domain::{
        call::{Call, Proposal, Request},
        ids::TenantId,
        outcome::OutcomeStatus,
        time::Timestamp,
    },
    engine::{self, CallerError, Recorded, Report, Shared, envelope::ToolResult},
    policy::Policy,
    store::{Pending, Slot},
    telemetry,
};

/// The answer to a report, stored before it is given.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordAnswer {
    /// What was stored and advised.
    pub recorded: Recorded,
    /// What to tell the model.
    pub text: ToolResult,
    /// True when the same report was stored before.
    pub replayed: bool,
}

/// What one attempt came to. What was decided without an append holds only if the tree's version is the stored one.
enum Attempt {
    Sent(Box<RecordAnswer>, Pending),
    Known(Box<RecordAnswer>, u64),
    Misused(CallerError, u64),
    Stale,
}

impl Gate {
    /// Takes in what came of a call. `observed` is what a question about it would have been; it counts for a call that
    /// nobody asked about.
    ///
    /// # Errors
    /// [`GateError`]: nothing was stored.
    pub async fn record(
        &self,
        tenant: TenantId,
        report: Report,
        observed: Option<Request>,
    ) -> Result<RecordAnswer, GateError> {
        let policy = self.policy();
        let observed = observed.map(|request| Box::new(policy.propose(request)));
        let report = Report { observed, ..report };
        let mut looked = false;
        for attempt in 0..TRIES_MAX {
            let slot = self.slot_for(tenant, &report).await?;
            let (answer, pending) = match self.try_record(&policy, tenant, &slot, &report).await? {
                Attempt::Sent(answer, pending) => (answer, pending),
                // A call, or its permit, that its tree has forgotten is looked for once.
                Attempt::Misused(CallerError::UnknownCall | CallerError::NotPermitted, _) if !looked => {
                    looked = true;
                    self.recall(tenant, &slot, &report.session, &report.call_id).await?;
                    continue;
                }
                Attempt::Known(answer, version) if self.is_current(tenant, &slot, version).await? => {
                    return self.with_arguments(tenant, &report, *answer).await;
                }
                Attempt::Misused(caller_error, version) if self.is_current(tenant, &slot, version).await? => {
                    return Err(caller_error.into());
                }
                Attempt::Known(..) | Attempt::Misused(..) | Attempt::Stale => {
                    self.invalidate(tenant, &slot);
                    continue;
                }
            };
            match pending.committed().await {
                Ok(_) => {
                    self.slots.set_root(tenant, &report.session, slot.root());
                    let settled = &answer.recorded.settled;
                    self.metrics.recorded(settled);
                    telemetry::verdict::recorded(settled);
                    self.reported(&policy, tenant, answer.recorded.lesson.as_ref());
                    return Ok(*answer);
                }
                Err(lost) => {
                    self.lost(tenant, &slot, &report.session, std::iter::once(&report.call_id), lost)?;
                }
            }
            sleep(PAUSE * attempt).await;
        }
        Err(GateError::Contention)
    }

    async fn slot_for(&self, tenant: TenantId, report: &Report) -> Result<Arc<Slot>, GateError> {
        match (&report.observed, self.known_root(tenant, &report.session).await?) {
            (_, Some(root)) => self.slot_of(tenant, &root).await,
            (Some(proposal), None) => self.slot(&proposal.request).await,
            (None, None) => Err(CallerError::UnknownCall.into()),
        }
    }

    async fn try_record(
        &self,
        policy: &Policy,
        tenant: TenantId,
        slot: &Arc<Slot>,
        report: &Report,
    ) -> Result<Attempt, GateError> {
        // What the report depends on is read first; if the call changes meanwhile, the append loses.
        let known = slot.advance(|tree| {
            let call = tree.sessions.get(&report.session).and_then(|session| session.reported(&report.call_id))?;
            Some((engine::ledger_key_of(&tree.root, call), call.agent.clone(), call.tool.clone()))
        });
        let Some(known) = known else { return Ok(Attempt::Stale) };
        let observed = report.observed.as_deref();
        let asked = observed.map(|proposal| {
            let request = &proposal.request;
            (engine::ledger_key(slot.root(), proposal), request.agent.clone(), request.tool.clone())
        });
        let Some((key, agent, tool)) = known.or(asked) else {
            return Ok(Attempt::Misused(CallerError::UnknownCall, slot.advance(|tree| tree.version).unwrap_or(0)));
        };
        let ledger = match key {
            Some(key) => self.store.ledger(tenant, key).await?,
            None => None,
        };
        let shared = Shared {
            counters: self.counters_of(policy, tenant, agent.as_ref(), None).await?,
            ledger,
            health: self.fleet.health(tenant, &tool),
            halts: Arc::default(),
            profiles: self.profiles(tenant).await,
        };
        let queue = self.store.queue_slot().await?;
        let now = self.store.now();
        let attempt = slot.advance(|tree| {
            let mut recorded = match engine::record(policy, tree, &shared, report, now) {
                Ok(recorded) => recorded,
                Err(caller_error) => return Attempt::Misused(caller_error, tree.version),
            };
            let call = described(tree.sessions.get(&report.session).and_then(|s| s.reported(&report.call_id)), report);
            let text = engine::envelope::recorded(&call, policy.tool(&call.tool).empty_means, &recorded);
            match recorded.change.take() {
                None => Attempt::Known(Box::new(RecordAnswer { recorded, text, replayed: true }), tree.version),
                Some(change) => {
                    let pending = queue.send(engine::advance(tree, *change), slot);
                    Attempt::Sent(Box::new(RecordAnswer { recorded, text, replayed: false }), pending)
                }
            }
        });
        Ok(attempt.unwrap_or(Attempt::Stale))
    }

    /// The answer to a report that was stored before, with the arguments that its tree no longer holds.
    async fn with_arguments(
        &self,
        tenant: TenantId,
        report: &Report,
        mut answer: RecordAnswer,
    ) -> Result<RecordAnswer, GateError> {
        if report.status == OutcomeStatus::Success {
            let arguments = self.store.arguments(tenant, &report.session, &report.call_id).await?;
            answer.text = engine::envelope::success(arguments.as_deref(), None, &answer.recorded.settled);
        }
        Ok(answer)
    }

    /// Settles as unknown the calls whose lease ran out between `since` and `until` and that nobody reported on.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when they cannot be read.
    pub async fn expire_leases(&self, since: Timestamp, until: Timestamp) -> Result<usize, GateError> {
        let expired = self.store.expired_leases(since, until).await?;
        let mut settled = 0;
        for lease in expired {
            let report = Report { by_lease: true, ..Report::new(lease.session, lease.call_id, OutcomeStatus::Unknown) };
            // A late report that comes in between goes first; then there is nothing left to settle.
            match self.record(lease.tenant, report, None).await {
                Ok(answer) => settled += usize::from(!answer.replayed),
                Err(GateError::CallerError(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(settled)
    }

    /// The database's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.store.now()
    }
}

/// The call as its text needs it: as remembered, or as reported.
fn described(known: Option<&Call>, report: &Report) -> Call {
    if let Some(call) = known {
        return call.clone();
    }
    let observed: Option<&Proposal> = report.observed.as_deref();
    observed.map_or_else(|| unreachable!("a report is on a known call, or says what it was"), Call::observed)
}
