//! The same call before: the question to a person that it waits for or was denied, and its newest earlier execution,
//! which a new permit continues. `same_call` judges by both.

use super::{
    call::{Approval, ApprovalStatus, Call, Proposal, Standing},
    effect::{Effect, EffectKind},
    finding::CallRef,
    fingerprint::Fingerprint,
    ids::SessionId,
    ledger::{LedgerRow, LedgerState},
    outcome::{Guard, OutcomeStatus},
    time::Timestamp,
    tree::{CallTree, Denial, Session},
};

/// Idle time after which attempts start again, in milliseconds (docs/semantics.md#attempts-and-occurrences).
pub const IDLE_MS: u64 = 600_000;

/// What was advised after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Worth it?
    pub retryable: bool,
    /// Not before this.
    pub not_before: Timestamp,
    /// True when it would be, but for the number of attempts.
    pub exhausted: bool,
}

/// What people were asked about the same call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Nobody has answered yet.
    Pending(Approval),
    /// Yes, for this very call, and it was not used yet.
    Approved(CallRef),
    /// No; it holds for the whole call tree until the root's next run.
    Denied {
        /// Why.
        reason: Option<String>,
    },
    /// Nobody answered in time.
    Expired,
}

/// Where the previous execution stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// It may be running.
    InFlight,
    /// It may have happened.
    Unknown,
    /// It happened.
    Succeeded,
    /// It failed, and nothing happened.
    Failed(Retry),
    /// It was called off.
    Cancelled,
}

/// The newest earlier call of one fingerprint that was permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Previous {
    /// Where it stands.
    pub past: Past,
    /// Which call it is.
    pub call: CallRef,
    /// The place of its permit among its tree's events.
    pub seq: u64,
    /// True when it belongs to another call tree: the ledger knows of it.
    pub foreign: bool,
    /// The session's run in which it was asked for, by the place of that run's first event; none for one only the
    /// ledger remembers.
    pub run: Option<(SessionId, u64)>,
    /// When it was last heard of.
    pub last_at: Timestamp,
    pub attempt: u32,
    pub occurrence: u64,
    /// How many of its last results were equal, the newest included.
    pub equal_results: u32,
}

impl CallTree {
    /// The newest earlier call of `fingerprint` that was permitted, in this tree or by the ledger.
    #[must_use]
    pub fn previous(&self, fingerprint: Fingerprint, ledger: Option<&LedgerRow>, now: Timestamp) -> Option<Previous> {
        let mine = self.remembered(fingerprint, now);
        let row = ledger.filter(|row| row.state != LedgerState::Vacant);
        match (mine, row) {
            (Some(mine), Some(row)) if row.root == self.root && row.seq <= mine.seq => Some(mine),
            (Some(mine), Some(row)) if row.root != self.root && row.permitted_at < mine.call.at => Some(mine),
            (_, Some(row)) => Some(self.as_the_ledger_has_it(row, now)),
            (mine, None) => mine,
        }
    }

    /// What people were asked about the proposed call, as far as it still holds under this policy. A permit that was
    /// given since, here or by the ledger, has overtaken the question, but never a denial.
    #[must_use]
    pub fn held(&self, proposal: &Proposal, policy: &str, previous: Option<&Previous>, now: Timestamp) -> Option<Held> {
        let (request, fingerprint) = (&proposal.request, proposal.fingerprint);
        let opens_root_run = request.session == self.root
            && self.sessions.get(&self.root).and_then(Session::current_run).is_none_or(|run| run.id != request.run);
        let is_denied = |denial: &&Denial| denial.fingerprint == fingerprint && denial.root_run == self.root_run();
        if let Some(denial) = self.denials.iter().rev().filter(|_| !opens_root_run).find(is_denied) {
            return Some(Held::Denied { reason: denial.reason.clone() });
        }
        let asked = self.calls_of(fingerprint).filter(|(_, _, call)| call.permit.is_none());
        let asked = asked.filter_map(|(id, session, call)| Some((id, session, call, call.approval.as_ref()?)));
        let is_own = |id: &SessionId, call: &Call| *id == request.session && call.call_id == request.call_id;
        let (id, session, call, approval) = asked.max_by_key(|(id, _, call, _)| (is_own(id, call), call.seq))?;
        let overtaken = |previous: &Previous| {
            if previous.foreign { previous.call.at >= call.at } else { previous.seq > call.seq }
        };
        if previous.is_some_and(overtaken) {
            return None;
        }
        let is_mine = *id == request.session;
        match approval.answer {
            ApprovalStatus::Approved => {
                let is_this = is_mine && call.args_digest == proposal.args_digest && approval.policy == policy;
                is_this.then(|| Held::Approved(call.reference(id)))
            }
            ApprovalStatus::Pending if now < approval.expires_at => Some(Held::Pending(approval.clone())),
            ApprovalStatus::Pending => {
                let same_run = call.run_from == session.run.from && (!is_mine || session.run.id == request.run);
                let last_at = session.calls.iter().map(|call| call.at).max().unwrap_or_default();
                // Who asked hears it; that it ends by itself is for those who ask anew.
                let holds = is_own(id, call) || now.since_ms(last_at) < IDLE_MS;
                (same_run && holds).then_some(Held::Expired)
            }
            ApprovalStatus::Denied => None,
        }
    }

    fn remembered(&self, fingerprint: Fingerprint, now: Timestamp) -> Option<Previous> {
        let permitted = self.calls_of(fingerprint).filter_map(|(id, _, call)| Some((id, call, call.permit.as_ref()?)));
        let (id, call, permit) = permitted.max_by_key(|(_, _, permit)| permit.seq)?;
        let past = match call.standing(now) {
            Standing::Refused | Standing::Held(_) => return None,
            Standing::InFlight => Past::InFlight,
            Standing::Unknown => Past::Unknown,
            Standing::Succeeded(_) => Past::Succeeded,
            Standing::Cancelled => Past::Cancelled,
            Standing::Failed(outcome) => {
                let advice = outcome.advice;
                Past::Failed(Retry {
                    retryable: advice.is_some_and(|advice| advice.retryable),
                    not_before: outcome.at.plus_ms(advice.map_or(0, |advice| advice.retry_after_ms)),
                    exhausted: advice.is_some_and(|advice| advice.guard == Some(Guard::Attempts)),
                })
            }
        };
        Some(Previous {
            past,
            call: call.reference(id),
            seq: permit.seq,
            foreign: false,
            run: Some((id.clone(), call.run_from)),
            last_at: call.outcome.as_ref().map_or(call.at, |outcome| outcome.at),
            attempt: permit.attempt,
            occurrence: permit.occurrence,
            equal_results: self.equal_results(fingerprint),
        })
    }

    /// How many of the last successes of `fingerprint` gave the same result, the newest included.
    fn equal_results(&self, fingerprint: Fingerprint) -> u32 {
        let mut results: Vec<_> = self
            .calls_of(fingerprint)
            .filter_map(|(_, _, call)| call.outcome.as_ref())
            .filter(|outcome| outcome.status == OutcomeStatus::Success)
            .map(|outcome| (outcome.seq, outcome.digest))
            .collect();
        results.sort_unstable();
        let newest = results.last().map(|(_, digest)| *digest);
        results.iter().rev().take_while(|(_, digest)| Some(*digest) == newest).count() as u32
    }

    fn as_the_ledger_has_it(&self, row: &LedgerRow, now: Timestamp) -> Previous {
        let settled_at = row.settled_at.unwrap_or(row.permitted_at);
        let past = match row.state {
            LedgerState::Permitted if now < row.lease_until => Past::InFlight,
            LedgerState::Vacant | LedgerState::Permitted | LedgerState::Unknown => Past::Unknown,
            LedgerState::Succeeded => Past::Succeeded,
            LedgerState::Cancelled => Past::Cancelled,
            LedgerState::Failed => Past::Failed(Retry {
                retryable: row.retryable,
                not_before: settled_at.plus_ms(row.retry_after_ms),
                exhausted: row.guard == Some(Guard::Attempts),
            }),
        };
        Previous {
            past,
            call: CallRef { session: row.session.clone(), call_id: row.call_id.clone(), at: row.permitted_at },
            seq: row.seq,
            foreign: row.root != self.root,
            run: None,
            last_at: settled_at,
            attempt: row.attempt,
            occurrence: row.occurrence,
            equal_results: 1,
        }
    }

    /// Has the world changed since `previous` (docs/semantics.md#world-changed)? What is no longer remembered
    /// counts as a change: a wrong refusal costs more than a needless call.
    #[must_use]
    pub fn world_changed_since(&self, previous: &Previous, fingerprint: Fingerprint, effect: &Effect) -> bool {
        if previous.foreign {
            return false;
        }
        if self.forgotten_change > previous.seq {
            return true;
        }
        self.calls().filter(|call| call.fingerprint != fingerprint).any(|call| {
            let Some(permit) = &call.permit else { return false };
            let progress = call.outcome.as_ref().is_some_and(|o| o.news && o.seq > previous.seq);
            if effect.kind == EffectKind::Unknown {
                return progress;
            }
            let failed_cleanly = call
                .outcome
                .as_ref()
                .is_some_and(|o| matches!(o.status, OutcomeStatus::Error | OutcomeStatus::Cancelled));
            match call.effect.kind {
                EffectKind::Write => permit.seq > previous.seq && !failed_cleanly && call.effect.overlaps(effect),
                EffectKind::Unknown => progress,
                EffectKind::Read | EffectKind::Poll | EffectKind::Check => false,
            }
        })
    }
}

impl Previous {
    /// True when attempts start again: in another run of the same session, or after ten idle minutes.
    #[must_use]
    pub fn is_stale(&self, session: &SessionId, run_from: Option<u64>, now: Timestamp) -> bool {
        // Who waits as told is not idle.
        let due_at = match &self.past {
            Past::Failed(retry) if retry.retryable => retry.not_before,
            _ => self.last_at,
        };
        let other_run = self.run.as_ref().is_some_and(|(id, from)| id == session && Some(*from) != run_from);
        other_run || now.since_ms(self.last_at.max(due_at)) >= IDLE_MS
    }
}
