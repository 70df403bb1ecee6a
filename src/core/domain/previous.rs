//! Lookup of the same call's history for `same_call`: its approval request, pending or denied, and its newest
//! execution, which a new permit continues.

mod changes;

use std::sync::Arc;

use super::{
    answer::{ContentAmount, ResultMarkers},
    call::{Approval, ApprovalStatus, Call, CallStatus, Permit, Proposal},
    failure::FailureKind,
    finding::CallRef,
    fingerprint::{Fingerprint, WitnessDigest, is_of_nothing},
    ids::SessionId,
    ledger::{LedgerRow, LedgerState},
    outcome::Guard,
    time::Timestamp,
    tree::{CallTree, Denial},
    truncation::FullText,
};

/// Idle time after which attempts start again, in milliseconds (docs/semantics.md#attempts-and-occurrences).
pub const IDLE_MS: u64 = 600_000;

/// Previous result, as far as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredResult {
    /// Deleted after its retention period.
    pub is_gone: bool,
    /// The success was inferred, not reported.
    pub is_inferred: bool,
    /// The text; none when only its digest is stored.
    pub text: Option<String>,
    /// Size of the result, in bytes.
    pub bytes: Option<u64>,
    /// Original size and digest, where the text is truncated.
    pub whole: Option<FullText>,
    /// Total number of matches.
    pub total_matches: Option<u64>,
    /// Completeness.
    pub is_complete: Option<bool>,
}

/// Retry advice of the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreviousAdvice {
    /// Is a retry worthwhile?
    pub retryable: bool,
    /// Earliest time of the retry.
    pub not_before: Timestamp,
    /// True when only the number of attempts forbids it.
    pub exhausted: bool,
}

/// Status of the same call's approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestStatus {
    /// Pending.
    Pending(Approval),
    /// Approved for this call, and not used yet.
    Approved(CallRef),
    /// Denied; holds for the whole call tree until the root's next run.
    Denied {
        /// Reason.
        reason: Option<String>,
    },
    /// Approved with other arguments: this call does not run.
    Edited {
        /// The call of the request, possibly this one.
        call: CallRef,
        /// Reason.
        reason: Option<String>,
    },
    /// Expired.
    Expired,
    /// Withdrawn; the request was of this `call_id`.
    Withdrawn,
}

/// State of the previous execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreviousExecution {
    /// It may be running.
    InFlight,
    /// The outcome is unknown.
    Unknown,
    /// It happened.
    Succeeded,
    /// It failed, and nothing happened.
    Failed(PreviousAdvice),
    /// It was called off.
    Cancelled,
}

/// The newest permitted call of one fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Previous {
    /// State.
    pub past: PreviousExecution,
    /// Reference to the call.
    pub call: CallRef,
    /// `seq` of its permit.
    pub seq: u64,
    /// True for a call of another tree, known by the ledger.
    pub foreign: bool,
    /// The session's run that requested it, by the `seq` of that run's first event; none for one known by the ledger
    /// alone.
    pub run: Option<(SessionId, u64)>,
    /// Last activity.
    pub last_at: Timestamp,
    pub attempt: u32,
    pub occurrence: u64,
    /// Attempts in this call tree without success and with a possible effect.
    pub open_attempts: u32,
    /// True when all known of those received the idempotency key.
    pub key_sent: bool,
    /// Late success: reported after its effect was open, and not yet communicated to a call.
    pub is_late: bool,
    /// Witness of the read; none where none was taken, or it changed during the execution.
    pub witness: Option<WitnessDigest>,
    /// The success was inferred, not reported.
    pub is_inferred: bool,
    /// Result size, in bytes; 0 if unknown to this tree.
    pub result_bytes: u32,
    /// Amount of information in the result; none if unknown to this tree.
    pub says: Option<ContentAmount>,
    /// The result is that of a write: it acknowledges, names something outside lists, or contains a recent creation
    /// time.
    pub is_act: bool,
    /// The result was empty, in any of the usual forms.
    pub is_empty: bool,
    /// For a failure in this call tree: its kind, and its error in one line.
    pub failure: Option<(FailureKind, Option<Arc<str>>)>,
}

impl CallTree {
    /// The newest permitted call of `fingerprint`, from this tree or the ledger.
    #[must_use]
    pub fn previous(&self, fingerprint: Fingerprint, ledger: Option<&LedgerRow>, now: Timestamp) -> Option<Previous> {
        let mine = self.find_remembered(fingerprint, now);
        let row = ledger.filter(|row| row.state != LedgerState::Vacant);
        match (mine, row) {
            (Some(mine), Some(row)) if row.root == self.root && row.seq <= mine.seq => Some(mine),
            (Some(mine), Some(row)) if row.root != self.root && row.permitted_at < mine.call.at => Some(mine),
            (_, Some(row)) => Some(self.as_the_ledger_has_it(row, now)),
            (mine, None) => mine,
        }
    }

    /// The approval request of the proposed call, if it is still valid under this policy. A later permit, here or in
    /// the ledger, supersedes a request, but never a denial.
    #[must_use]
    pub fn valid_request(
        &self,
        proposal: &Proposal,
        policy: &str,
        previous: Option<&Previous>,
        now: Timestamp,
    ) -> Option<RequestStatus> {
        let (request, fingerprint) = (&proposal.request, proposal.fingerprint);
        let opens_root_run = request.session == self.root
            && self
                .sessions
                .get(&self.root)
                .and_then(|root| root.current_run())
                .is_none_or(|run| run.id != request.run);
        if let Some(edit) = self.find_edit(proposal, opens_root_run) {
            return Some(RequestStatus::Edited { call: edit.call.clone(), reason: edit.reason.clone() });
        }
        let is_denied = |denial: &&Denial| denial.fingerprint == fingerprint && denial.root_run == self.root_run();
        if let Some(denial) = self.denials.iter().rev().filter(|_| !opens_root_run).find(is_denied) {
            return Some(RequestStatus::Denied { reason: denial.reason.clone() });
        }
        let asked = self.calls_of(fingerprint).filter(|(_, _, call)| call.permit.is_none());
        let asked = asked.filter_map(|(id, session, call)| Some((id, session, call, call.approval.as_deref()?)));
        let is_own = |id: &SessionId, call: &Call| *id == request.session && call.call_id == request.call_id;
        // A poll of a withdrawn request returns that, without a new request; another call is a new one.
        let is_over = |answer| matches!(answer, ApprovalStatus::Withdrawn | ApprovalStatus::Edited);
        let asked = asked.filter(|(id, _, call, asked)| !is_over(asked.answer) || is_own(id, call));
        let (id, session, call, approval) = asked.max_by_key(|(id, _, call, _)| (is_own(id, call), call.seq))?;
        let overtaken = |previous: &Previous| {
            if previous.foreign { previous.call.at >= call.at } else { previous.seq > call.seq }
        };
        if !is_over(approval.answer) && previous.is_some_and(overtaken) {
            return None;
        }
        let is_mine = *id == request.session;
        match approval.answer {
            ApprovalStatus::Approved => {
                let is_this = is_mine && call.args_digest == proposal.args_digest && *approval.policy == *policy;
                is_this.then(|| RequestStatus::Approved(call.reference(id)))
            }
            ApprovalStatus::Pending if now < approval.expires_at => Some(RequestStatus::Pending(approval.clone())),
            ApprovalStatus::Pending => {
                let same_run = call.run_from == session.run.from && (!is_mine || session.run.id == request.run);
                let last_at = session.calls.iter().map(|call| call.at).max().unwrap_or_default();
                // The requester sees the answer in any case; idle expiry applies to new calls.
                let holds = is_own(id, call) || now.since_ms(last_at) < IDLE_MS;
                (same_run && holds).then_some(RequestStatus::Expired)
            }
            ApprovalStatus::Withdrawn => Some(RequestStatus::Withdrawn),
            ApprovalStatus::Edited => {
                Some(RequestStatus::Edited { call: call.reference(id), reason: approval.reason.clone() })
            }
            ApprovalStatus::Denied => None,
        }
    }

    fn find_remembered(&self, fingerprint: Fingerprint, now: Timestamp) -> Option<Previous> {
        let permitted =
            || self.calls_of(fingerprint).filter_map(|(id, _, call)| Some((id, call, call.permit.as_ref()?)));
        let newest = permitted().max_by_key(|(_, _, permit)| permit.seq)?;
        // A late success of any attempt settles the occurrence.
        let is_settled = |(_, call, permit): &(&SessionId, &Call, &Permit)| {
            permit.occurrence == newest.2.occurrence && call.success().is_some()
        };
        let (id, call, permit) =
            permitted().filter(is_settled).max_by_key(|(_, _, permit)| permit.seq).unwrap_or(newest);
        let past = match call.standing(now) {
            CallStatus::Refused | CallStatus::Held(_) => return None,
            CallStatus::InFlight => PreviousExecution::InFlight,
            CallStatus::Unknown => PreviousExecution::Unknown,
            CallStatus::Succeeded(_) => PreviousExecution::Succeeded,
            CallStatus::Cancelled => PreviousExecution::Cancelled,
            CallStatus::Failed(outcome) => {
                let advice = outcome.advice.as_deref();
                PreviousExecution::Failed(PreviousAdvice {
                    retryable: advice.is_some_and(|advice| advice.retryable),
                    not_before: outcome.at.plus_ms(advice.map_or(0, |advice| advice.retry_after_ms)),
                    exhausted: advice.is_some_and(|advice| advice.guard == Some(Guard::Attempts)),
                })
            }
        };
        let open = || self.open_attempts(fingerprint, permit.occurrence, now);
        Some(Previous {
            past,
            call: call.reference(id),
            seq: permit.seq,
            foreign: false,
            run: Some((id.clone(), call.run_from)),
            last_at: call.outcome.as_ref().map_or(call.at, |outcome| outcome.at),
            attempt: permit.attempt,
            occurrence: permit.occurrence,
            is_late: call.success().is_some_and(|outcome| {
                outcome.is_late && !self.calls_of(fingerprint).any(|(_, _, other)| other.seq > outcome.seq)
            }),
            witness: call.witness.filter(|_| call.outcome.is_some()),
            open_attempts: open().count() as u32,
            key_sent: open().all(|(_, open)| open.outcome.as_ref().is_some_and(|outcome| outcome.key_sent)),
            is_inferred: call.success().is_some_and(|outcome| outcome.is_inferred),
            result_bytes: call.outcome.as_ref().map_or(0, |outcome| outcome.result_bytes),
            says: call.outcome.as_ref().and_then(|outcome| outcome.marks.as_deref()).map(|marks| marks.says),
            is_act: call
                .success()
                .and_then(|outcome| outcome.marks.as_deref())
                .is_some_and(ResultMarkers::is_of_an_act),
            is_empty: call
                .outcome
                .as_ref()
                .and_then(|outcome| outcome.digest)
                .is_some_and(|digest| is_of_nothing(&digest)),
            failure: call.outcome.as_ref().and_then(|o| Some((o.failure?, o.error_line.clone()))),
        })
    }

    fn as_the_ledger_has_it(&self, row: &LedgerRow, now: Timestamp) -> Previous {
        let settled_at = row.settled_at.unwrap_or(row.permitted_at);
        let past = match row.state {
            LedgerState::Permitted if now < row.lease_until => PreviousExecution::InFlight,
            LedgerState::Vacant | LedgerState::Permitted | LedgerState::Unknown => PreviousExecution::Unknown,
            LedgerState::Succeeded => PreviousExecution::Succeeded,
            LedgerState::Cancelled => PreviousExecution::Cancelled,
            // Guards of another call tree that concern it alone do not bind this one.
            LedgerState::Failed if row.root != self.root && row.guard.is_some_and(Guard::is_own) => {
                PreviousExecution::Cancelled
            }
            LedgerState::Failed => PreviousExecution::Failed(PreviousAdvice {
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
            is_late: false,
            open_attempts: 0,
            witness: None,
            key_sent: row.key_sent,
            is_inferred: false,
            result_bytes: 0,
            says: None,
            is_act: false,
            is_empty: false,
            failure: None,
        }
    }
}

impl Previous {
    /// True when attempts restart: in another run of the same session, or after ten idle minutes.
    #[must_use]
    pub fn is_stale(&self, session: &SessionId, run_from: Option<u64>, now: Timestamp) -> bool {
        // An advised wait is no idle time.
        let due_at = match &self.past {
            PreviousExecution::Failed(retry) if retry.retryable => retry.not_before,
            _ => self.last_at,
        };
        let other_run = self.run.as_ref().is_some_and(|(id, from)| id == session && Some(*from) != run_from);
        other_run || now.since_ms(self.last_at.max(due_at)) >= IDLE_MS
    }
}
