//! Difference between a recorded decision and that of another policy.

use std::fmt;

use super::{
    finding::Decision,
    ids::{CallId, SessionId},
};

/// Kind of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// Now allowed.
    NewlyAllowed,
    /// Was allowed, now needs approval.
    NewlyAsked,
    /// Was allowed, now has to wait.
    NewlyDelayed,
    /// Was allowed, now refused.
    NewlyRefused,
    /// Still not allowed, with another decision.
    OtherwiseRefused,
}

impl DifferenceKind {
    /// Stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewlyAllowed => "newly allowed",
            Self::NewlyAsked => "newly asked",
            Self::NewlyDelayed => "newly delayed",
            Self::NewlyRefused => "newly refused",
            Self::OtherwiseRefused => "otherwise refused",
        }
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
