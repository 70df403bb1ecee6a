//! History of a session: its calls as gists, for models that lost their context. It is read from the store on request;
//! the tree itself holds only the last calls.

use super::{
    answer::ResultMarkers,
    effect::Effect,
    event::{JudgmentEvent, SettledEvent},
    failure::FailureKind,
    finding::Decision,
    fingerprint::Fingerprint,
    gist::SuccessSummary,
    ids::{CallId, ToolName},
    outcome::OutcomeStatus,
    reason::Reason,
    session_state::CallState,
    time::Timestamp,
};

/// Maximum number of calls read.
pub const PAST_MAX: usize = 5_000;
/// Maximum length of arguments, in characters.
pub const PAST_TEXT_MAX: usize = 4_096;

/// One judgment of a call, with its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct PastCall {
    /// `seq` of the judgment.
    pub seq: u64,
    pub call_id: CallId,
    pub tool: ToolName,
    /// For recognizing repetition.
    pub fingerprint: Fingerprint,
    /// Effect.
    pub effect: Effect,
    /// Stored arguments, truncated.
    pub arguments: Option<String>,
    /// Time of the judgment.
    pub at: Timestamp,
    /// Applied decision.
    pub decision: Decision,
    /// Why, when it was not simply allowed.
    pub reason: Option<Reason>,
    /// For a permitted call: expiry of its lease.
    pub lease_until: Option<Timestamp>,
    /// Outcome.
    pub outcome: Option<PastOutcome>,
}

/// Outcome of a past call.
#[derive(Debug, Clone, PartialEq)]
pub struct PastOutcome {
    /// Status; never `Running`.
    pub status: OutcomeStatus,
    /// Failure kind.
    pub failure: Option<FailureKind>,
    /// Time of its record.
    pub at: Timestamp,
    /// For a success whose result is stored.
    pub gist: Option<SuccessSummary>,
    /// The answer is that of a write: an acknowledgment, or the name of a creation.
    pub is_act: bool,
    /// The execution received the idempotency key.
    pub key_sent: bool,
    /// The success was inferred, not reported.
    pub is_inferred: bool,
    /// Another attempt of the occurrence has succeeded as well.
    pub is_double: bool,
    /// Size of the whole answer, in bytes.
    pub result_bytes: Option<u64>,
    /// The stored answer is truncated.
    pub is_cut: bool,
    /// Does the answer hold everything there is?
    pub is_complete: Option<bool>,
    /// Total number of matches.
    pub total_matches: Option<u64>,
    /// The error in one line.
    pub error: Option<String>,
    /// For a failure: is a retry worth it?
    pub retryable: Option<bool>,
    /// Wait before a retry, in milliseconds.
    pub retry_after_ms: u64,
}

impl PastCall {
    /// A judgment without an outcome.
    #[must_use]
    pub fn of(event: &JudgmentEvent) -> Self {
        Self {
            seq: event.seq,
            call_id: event.call_id.clone(),
            tool: event.tool.clone(),
            fingerprint: event.fingerprint,
            effect: event.effect.clone(),
            arguments: event.arguments.as_deref().map(start),
            at: event.at,
            decision: event.decision,
            reason: event.reason,
            lease_until: event.permit.as_ref().map(|permit| permit.lease_until),
            outcome: None,
        }
    }

    /// Adds the outcome.
    pub fn settle(&mut self, event: &SettledEvent) {
        if event.status == OutcomeStatus::Running {
            self.lease_until = event.lease_until.or(self.lease_until);
            return;
        }
        let advice = event.advice.as_ref();
        self.outcome = Some(PastOutcome {
            status: event.status,
            failure: event.failure,
            at: event.at,
            gist: event.gist.clone(),
            is_act: event.marks.as_deref().is_some_and(ResultMarkers::is_of_an_act),
            key_sent: event.key_sent,
            is_inferred: event.inferred,
            is_double: event.double_effect,
            result_bytes: event.result_bytes,
            is_cut: event.whole.is_some(),
            is_complete: event.is_complete,
            total_matches: event.total_matches,
            error: event.error_line.as_deref().map(str::to_owned),
            retryable: advice.map(|advice| advice.retryable),
            retry_after_ms: advice.map_or(0, |advice| advice.retry_after_ms),
        });
    }

    /// State at `now`. A pending approval is known to the tree alone, and counts as refused here.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> CallState {
        match (&self.outcome, self.lease_until) {
            (_, None) => CallState::Refused,
            (None, Some(until)) if now < until => CallState::InFlight,
            (None, Some(_)) => CallState::Unknown,
            (Some(outcome), Some(_)) => match outcome.status {
                OutcomeStatus::Success => CallState::Succeeded,
                OutcomeStatus::Error => CallState::Failed,
                OutcomeStatus::Cancelled => CallState::Cancelled,
                OutcomeStatus::Running | OutcomeStatus::Unknown => CallState::Unknown,
            },
        }
    }

    /// True for a call that may have happened and whose repetition would be a second change.
    #[must_use]
    pub fn is_unsafe_to_repeat(&self) -> bool {
        self.effect.is_unsafe_to_repeat(self.outcome.as_ref().is_some_and(|outcome| outcome.key_sent))
    }

    /// Time of the last event.
    #[must_use]
    pub fn last_at(&self) -> Timestamp {
        self.outcome.as_ref().map_or(self.at, |outcome| outcome.at)
    }
}

fn start(text: &str) -> String {
    text.chars().take(PAST_TEXT_MAX).collect()
}
