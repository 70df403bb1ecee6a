//! Difference between a recorded decision and that of another policy.

use std::fmt;

use super::{
    closed_set::closed_set,
    finding::Decision,
    ids::{CallId, SessionId},
};

closed_set! {
    /// Kind of the difference.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum DifferenceKind {
        /// Now allowed.
        NewlyAllowed = "newly allowed",
        /// Was allowed, now needs approval.
        NewlyAsked = "newly asked",
        /// Was allowed, now has to wait.
        NewlyDelayed = "newly delayed",
        /// Was allowed, now refused.
        NewlyRefused = "newly refused",
        /// Still not allowed, with another decision.
        OtherwiseRefused = "otherwise refused",
    }
}

/// A call with a different decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// Its session.
    pub session: SessionId,
    /// Its id.
    pub call_id: CallId,
    /// The old policy's decision, and the new one's.
    pub decisions: (Decision, Decision),
    /// Message of the deciding rule.
    pub message: String,
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, call_id, decisions: (before, after), message } = self;
        write!(f, "{session} {call_id}: {} -> {}: {message}", before.as_str(), after.as_str())
    }
}
