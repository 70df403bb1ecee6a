//! The seam: load, decide, append, try again. This room knows the engine, the policy and the store, and puts them
//! together; it must not know SQL or gRPC. The decision is a closure over an old state, run again when the race is
//! lost.

mod batch;
mod control;
mod fleet;
mod inbox;
mod policies;
mod profiles;
mod record;
mod trees;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::time::sleep;

use crate::{
    clock::Clock,
    domain::{
        call::{Proposal, Request},
        finding::Decision,
        ids::{CallId, DEFAULT_TENANT, SessionId, TenantId},
        tool::InjectAs,
        verdict::Verdict,
    },
    engine::{
        self, Judgement,
        envelope::{PreviousResult, ToolResult},
    },
    policy::Policy,
    store::{Lost, Pending, Slot, Slots, Store, StoreError},
    telemetry::{self, Metrics},
};

use batch::{SharedBatch, evidence, judge_all};
use fleet::Fleet;
pub use policies::{Activated, Applied, Apply, Author};
pub use profiles::{NearPair, QualityReport};
pub use record::RecordAnswer;
// What callers of the gate handle, so that the edges need no other room.
pub use crate::{
    engine::{CallState, CallerError, Command, LAST_CALLS_DEFAULT, Operation, Report, SessionState},
    policy::PolicyError,
    retry::{classify::retry_after_ms, profiles::Profile},
    store::Wanted,
};

/// A new name for something: a prefix and a UUID, which sorts by time.
#[must_use]
pub fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}

/// How often a lost race is run again before the caller is told to come back.
const TRIES_MAX: u32 = 10;
/// Pause after a lost race; grows with each.
const PAUSE: Duration = Duration::from_millis(2);
/// Calls of one batch.
pub const BATCH_MAX: usize = 64;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The caller's own fault.
    #[error("{0:?}")]
    CallerError(CallerError),
    /// No such session.
    #[error("no such session")]
    SessionUnknown,
    /// More is asked than can be stored.
    #[error("more is asked than can be stored")]
    Overloaded,
    /// Others kept changing the same call tree.
    #[error("the call tree kept changing")]
    Contention,
    /// The database is out of reach.
    #[error("the database is out of reach: {0}")]
    StoreUnavailable(String),
}

impl From<CallerError> for GateError {
    fn from(caller_error: CallerError) -> Self {
        Self::CallerError(caller_error)
    }
}

impl From<StoreError> for GateError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Overloaded => Self::Overloaded,
            error => Self::StoreUnavailable(error.to_string()),
        }
    }
}

/// An answer to a question, stored before it is given.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateAnswer {
    /// What holds.
    pub verdict: Verdict,
    /// What to tell the model; none for ALLOW.
    pub text: Option<ToolResult>,
    /// Where the policy wants the idempotency key.
    pub inject_as: Option<InjectAs>,
    /// The arguments to execute instead of those that were asked for.
    pub executes: Option<String>,
}

/// What stands between the callers and the store.
#[derive(Debug)]
pub struct Gate {
    policy: ArcSwap<Policy>,
    store: Store,
    slots: Slots,
    metrics: Metrics,
    clock: Clock,
    fleet: Fleet,
}

/// What one attempt came to. What was decided without an append holds only if the tree's version is the stored one.
enum Attempt {
    Replayed(Vec<Verdict>, u64),
    Misused(CallerError, u64),
    Sent(Vec<Verdict>, Pending),
    Stale,
}

impl Gate {
    /// A gate over an open store.
    #[must_use]
    pub fn new(policy: Arc<Policy>, store: Store, metrics: Metrics, clock: Clock) -> Self {
        Self { policy: ArcSwap::new(policy), store, slots: Slots::default(), metrics, clock, fleet: Fleet::default() }
    }

    /// May these calls of one session run? They are judged together, each seeing the ones before it as running.
    ///
    /// # Errors
    /// [`GateError`]: nothing was decided.
    pub async fn evaluate(&self, requests: Vec<Request>) -> Result<Vec<EvaluateAnswer>, GateError> {
        let started = self.clock.tick();
        let policy = self.policy();
        let proposals: Vec<Proposal> = requests.into_iter().map(|request| policy.propose(request)).collect();
        let (verdicts, slot) = match self.judge(&policy, &proposals).await {
            Err(error @ GateError::StoreUnavailable(_)) => {
                let halts = self.halts(proposals.first().map_or(DEFAULT_TENANT, |proposal| proposal.request.tenant));
                let answers = batch::unrecorded(&policy, &proposals, &halts, self.now()).ok_or(error)?;
                tracing::warn!("reads are let through unrecorded while the database is out of reach");
                return Ok(answers);
            }
            judged => judged?,
        };
        let mut answers = Vec::with_capacity(verdicts.len());
        for (proposal, verdict) in proposals.iter().zip(verdicts) {
            self.metrics.evaluated(&verdict, self.clock.elapsed(started));
            let evidence = verdict.loop_broken().and_then(|_| slot.advance(|tree| evidence(tree, proposal)));
            if !verdict.replayed && !proposal.coerced.is_empty() {
                self.metrics.coerced(&proposal.request.tool);
                telemetry::verdict::coerced(proposal);
            }
            telemetry::verdict::evaluated(&verdict, proposal, evidence.unwrap_or_default());
            answers.push(self.answer(proposal, verdict).await);
        }
        Ok(answers)
    }

    /// What would be answered now; nothing is stored, and no permit is given.
    ///
    /// # Errors
    /// [`GateError`]: nothing could be decided.
    pub async fn dry_run(&self, request: Request) -> Result<EvaluateAnswer, GateError> {
        let policy = self.policy();
        let proposal = policy.propose(request);
        let slot = self.slot(&proposal.request).await?;
        let shared = self.shared(&policy, &slot, std::slice::from_ref(&proposal)).await?;
        let now = self.store.now();
        let judged = slot.advance(|tree| engine::evaluate(&policy, tree, &shared.of(0), &proposal, None, now));
        self.permitted(&policy, &proposal, None, !shared.claimed().is_empty()).await;
        let verdict = match judged.ok_or(GateError::Contention)?? {
            Judgement::Replay(verdict) | Judgement::New(verdict, _) => Verdict { permit: None, ..verdict },
        };
        Ok(self.answer(&proposal, verdict).await)
    }

    async fn judge(&self, policy: &Policy, proposals: &[Proposal]) -> Result<(Vec<Verdict>, Arc<Slot>), GateError> {
        let Some(first) = proposals.first() else {
            return Err(GateError::SessionUnknown);
        };
        let (tenant, session) = (first.request.tenant, &first.request.session);
        for attempt in 0..TRIES_MAX {
            let slot = self.slot(&first.request).await?;
            match self.attempt(policy, &slot, proposals).await? {
                Attempt::Replayed(verdicts, version) if self.is_current(tenant, &slot, version).await? => {
                    return Ok((verdicts, slot));
                }
                Attempt::Misused(caller_error, version) if self.is_current(tenant, &slot, version).await? => {
                    return Err(caller_error.into());
                }
                Attempt::Replayed(..) | Attempt::Misused(..) | Attempt::Stale => self.invalidate(tenant, &slot),
                Attempt::Sent(verdicts, pending) => match pending.committed().await {
                    Ok(_) => {
                        self.slots.set_root(tenant, session, slot.root());
                        return Ok((verdicts, slot));
                    }
                    Err(lost) => {
                        let calls = proposals.iter().map(|proposal| &proposal.request.call_id);
                        self.lost(tenant, &slot, session, calls, lost)?;
                    }
                },
            }
            sleep(PAUSE * attempt).await;
        }
        Err(GateError::Contention)
    }

    /// Judges all proposals on the slot's tree, and lets the fleet know what was permitted.
    async fn attempt(&self, policy: &Policy, slot: &Arc<Slot>, proposals: &[Proposal]) -> Result<Attempt, GateError> {
        let shared = self.shared(policy, slot, proposals).await?;
        let claimed = shared.claimed();
        let attempt = self.judge_once(policy, slot, proposals, shared).await;
        let permitted: &[Verdict] = match &attempt {
            Ok(Attempt::Sent(verdicts, _)) => verdicts,
            _ => &[],
        };
        for (i, proposal) in proposals.iter().enumerate() {
            let permit = permitted.get(i).filter(|verdict| !verdict.replayed).and_then(|v| v.permit.as_ref());
            self.permitted(policy, proposal, permit, claimed.contains(&i)).await;
        }
        attempt
    }

    /// Judges all proposals on the slot's tree, under its lock, and sends what they change.
    async fn judge_once(
        &self,
        policy: &Policy,
        slot: &Arc<Slot>,
        proposals: &[Proposal],
        shared: SharedBatch,
    ) -> Result<Attempt, GateError> {
        // The queue slot is taken before the tree is locked, so that nothing waits inside.
        let queue = self.store.queue_slot().await?;
        let now = self.store.now();
        let attempt = slot.advance(|tree| match judge_all(policy, tree, shared, proposals, now) {
            Err(caller_error) => Attempt::Misused(caller_error, tree.version),
            Ok((verdicts, None)) => Attempt::Replayed(verdicts, tree.version),
            Ok((verdicts, Some(append))) => Attempt::Sent(verdicts, queue.send(append, slot)),
        });
        Ok(attempt.unwrap_or(Attempt::Stale))
    }

    /// A change was not accepted: what it was decided on is read anew.
    fn lost<'a>(
        &self,
        tenant: TenantId,
        slot: &Arc<Slot>,
        session: &SessionId,
        calls: impl Iterator<Item = &'a CallId>,
        lost: Lost,
    ) -> Result<(), GateError> {
        self.metrics.conflict(lost.as_str());
        // Somebody uses a call_id again that its tree has forgotten.
        if lost == Lost::CallId {
            calls.for_each(|call_id| self.slots.miss(tenant, slot.root(), session, call_id));
        }
        self.invalidate(tenant, slot);
        match lost {
            Lost::Unreachable => return Err(GateError::StoreUnavailable("no commit".to_owned())),
            Lost::Session => self.slots.forget_root(tenant, session),
            Lost::CallId | Lost::Version | Lost::Ledger | Lost::Counter => {}
        }
        Ok(())
    }

    async fn answer(&self, proposal: &Proposal, verdict: Verdict) -> EvaluateAnswer {
        let reuse =
            verdict.winner().and_then(|winner| winner.reuse.as_ref()).filter(|_| verdict.decision == Decision::Reuse);
        let previous = match reuse {
            // Without the text the model is told when it was done: still an answer.
            Some(call) => {
                let text = self.store.result(proposal.request.tenant, &call.session, &call.call_id).await;
                Some(PreviousResult { text: text.unwrap_or_default() })
            }
            None => None,
        };
        let text = engine::envelope::refusal(&verdict, &proposal.spec.suggested_next, previous.as_ref());
        let executes = proposal.repaired.then(|| proposal.canonical.to_string());
        let inject_as = proposal.spec.inject_as.clone();
        EvaluateAnswer { verdict, text, inject_as, executes }
    }

    /// The state of a session.
    ///
    /// # Errors
    /// [`GateError::SessionUnknown`] for a session without a call; others when it cannot be read.
    pub async fn session_state(
        &self,
        tenant: TenantId,
        session: &SessionId,
        last_calls: usize,
    ) -> Result<SessionState, GateError> {
        let policy = self.policy();
        for _ in 0..TRIES_MAX {
            let root = self.known_root(tenant, session).await?.ok_or(GateError::SessionUnknown)?;
            let slot = self.slot_of(tenant, &root).await?;
            let counters = self.counters(&policy, tenant, &slot, session).await?;
            let now = self.store.now();
            let state = slot.advance(|tree| {
                (engine::session_state(&policy, tree, session, &counters, last_calls, now), tree.version)
            });
            let Some((state, version)) = state else {
                self.invalidate(tenant, &slot);
                continue;
            };
            if self.is_current(tenant, &slot, version).await? {
                let state = state.ok_or(GateError::SessionUnknown)?;
                let tools = state.calls.iter().map(|(call, _)| call.tool.clone());
                return Ok(SessionState { cooldowns: self.fleet.cooldowns(tenant, tools, now), ..state });
            }
            self.invalidate(tenant, &slot);
        }
        Err(GateError::Contention)
    }

    /// Does the database answer?
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when it does not.
    pub async fn ping(&self) -> Result<(), GateError> {
        Ok(self.store.ping().await?)
    }

    /// Makes the partitions that the next weeks need.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when the database refuses.
    pub async fn make_partitions(&self) -> Result<(), GateError> {
        Ok(self.store.make_partitions().await?)
    }

    /// Writes what is on its way and closes the store.
    pub async fn close(self) {
        self.store.close().await;
    }
}
