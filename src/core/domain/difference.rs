//! What another policy would have decided of a call.

use std::fmt;

use super::{
    finding::Decision,
    ids::{CallId, SessionId},
};

/// What becomes of a call by another policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// It is allowed, and was not.
    NewlyAllowed,
    /// It was allowed, and a person is asked.
    NewlyAsked,
    /// It was allowed, and is told to wait.
    NewlyDelayed,
    /// It was allowed, and is refused.
    NewlyRefused,
    /// It was not allowed, and is not, but told so in another way.
    OtherwiseRefused,
}

impl What {
    /// For people and for programs.
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

/// A call that is decided otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// Its session.
    pub session: SessionId,
    /// Its id.
    pub call_id: CallId,
    /// What the old policy decides, and what the new one does.
    pub decisions: (Decision, Decision),
    /// The sentence of the rule that decides.
    pub message: String,
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, call_id, decisions: (before, after), message } = self;
        write!(f, "{session} {call_id}: {} -> {}: {message}", before.as_str(), after.as_str())
    }
}
