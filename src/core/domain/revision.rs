//! Policy revisions: the history of activations.

use super::time::Timestamp;

/// One activation of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Revision number, from 1.
    pub number: u64,
    /// The policy: SHA-256 of its text, hexadecimal.
    pub hash: String,
    /// Time of the activation.
    pub at: Timestamp,
    /// Actor.
    pub by: String,
    /// The actor's note.
    pub note: String,
}

/// Result of an activation attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activation {
    /// Activated.
    Active(Revision),
    /// Compare-and-set conflict: the active revision is not the expected one.
    Changed {
        /// The active revision; 0 for none.
        revision: u64,
    },
    /// Unknown policy.
    Unknown,
}
