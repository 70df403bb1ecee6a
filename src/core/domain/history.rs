//! A session's past: its calls in a few words each, as they are told to whoever has forgotten them. They are read from
//! what is stored when somebody asks; the tree itself remembers the last ones only.

use super::{
    answer::Marks,
    effect::Effect,
    event::{Judged, Settled},
    failure::FailureKind,
    finding::Decision,
    fingerprint::Fingerprint,
    gist::Gist,
    ids::{CallId, ToolName},
    outcome::OutcomeStatus,
    reason::Reason,
    session_state::CallState,
    time::Timestamp,
};

/// Calls that are looked back on.
pub const PAST_MAX: usize = 5_000;
/// Arguments that are looked back on, in characters.
pub const PAST_TEXT_MAX: usize = 4_096;

/// One judgement of a call, with what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct PastCall {
    /// The place of the judgement among its tree's events.
    pub seq: u64,
    pub call_id: CallId,
    pub tool: ToolName,
    /// For recognising repetition.
    pub fingerprint: Fingerprint,
    /// What it does to the world.
    pub effect: Effect,
    /// Its arguments as they are stored, cut off where they are long.
    pub arguments: Option<String>,
    /// When it was judged.
    pub at: Timestamp,
    /// What held.
    pub decision: Decision,
    /// Why, when it was not simply allowed.
    pub reason: Option<Reason>,
    /// For one that was permitted: until when its outcome is waited for.
    pub lease_until: Option<Timestamp>,
    /// What came of it.
    pub outcome: Option<PastOutcome>,
}

/// What came of a past call.
#[derive(Debug, Clone, PartialEq)]
pub struct PastOutcome {
    /// What came of it; never `Running`.
    pub status: OutcomeStatus,
    /// What went wrong.
    pub failure: Option<FailureKind>,
    /// When it was recorded.
    pub at: Timestamp,
    /// For a success whose result is stored.
    pub gist: Option<Gist>,
    /// Its answer looks like that of an act: it acknowledged, or named something made.
    pub is_act: bool,
    /// The execution received the idempotency key.
    pub key_sent: bool,
    /// Nobody reported the success: it was inferred.
    pub is_inferred: bool,
    /// Another attempt of the occurrence has succeeded as well.
    pub is_double: bool,
    /// Size of the whole answer, in bytes.
    pub result_bytes: Option<u64>,
    /// Only the beginning of the answer is stored.
    pub is_cut: bool,
    /// Does the answer hold everything there is?
    pub is_complete: Option<bool>,
    /// How many matches there are in all.
    pub total_matches: Option<u64>,
    /// The error in one line.
    pub error: Option<String>,
    /// For a failure: is a retry worth it?
    pub retryable: Option<bool>,
    /// How long to wait first, in milliseconds.
    pub retry_after_ms: u64,
}

impl PastCall {
    /// A judgement, before anything came of it.
    #[must_use]
    pub fn of(event: &Judged) -> Self {
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

    /// Takes in what came of it.
    pub fn settle(&mut self, event: &Settled) {
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
            is_act: event.marks.as_deref().is_some_and(Marks::is_of_an_act),
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

    /// Where it stands at `now`. A question to a person is known by the tree alone, and counts as refused here.
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

    /// True for one that may have happened, whose repetition would be a second change.
    #[must_use]
    pub fn is_unsafe_to_repeat(&self) -> bool {
        self.effect.is_unsafe_to_repeat(self.outcome.as_ref().is_some_and(|outcome| outcome.key_sent))
    }

    /// When it was last heard of.
    #[must_use]
    pub fn last_at(&self) -> Timestamp {
        self.outcome.as_ref().map_or(self.at, |outcome| outcome.at)
    }
}

fn start(text: &str) -> String {
    text.chars().take(PAST_TEXT_MAX).collect()
}
