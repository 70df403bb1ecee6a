//! What an agent made, remembered beyond its call tree: an agent that was restarted begins a new session, and does not
//! know what it did before.

use super::{finding::CallRef, fingerprint::Fingerprint, ids::AgentId, time::Timestamp};

/// Whose creation, by which call.
pub type CreationKey = (AgentId, Fingerprint);

/// A call that made something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// The call.
    pub call: CallRef,
    /// When its result was reported.
    pub at: Timestamp,
    /// The name of what it made, where it gave one.
    pub name: Option<String>,
}
