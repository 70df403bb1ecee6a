//! Which policy is active: a history of activations.

use super::time::Timestamp;

/// One activation of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Counts the activations, from 1.
    pub number: u64,
    /// The policy: SHA-256 of its text, hexadecimal.
    pub hash: String,
    /// When it was activated.
    pub at: Timestamp,
    /// Who activated it.
    pub by: String,
    /// Why, in their words.
    pub note: String,
}

/// What came of an attempt to activate a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activation {
    /// It is active.
    Active(Revision),
    /// Another revision is active than the one that was expected.
    Changed {
        /// The active one; 0 when none is.
        revision: u64,
    },
    /// No such policy is stored.
    Unknown,
}
