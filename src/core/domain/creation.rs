//! Creations of an agent, kept beyond its call tree: a restarted agent has a new session without its history.

use super::{finding::CallRef, fingerprint::Fingerprint, ids::AgentId, time::Timestamp};

/// Key of a creation: the agent and the fingerprint of the call.
pub type CreationKey = (AgentId, Fingerprint);

/// A call that created something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// The call.
    pub call: CallRef,
    /// Time of its report.
    pub at: Timestamp,
    /// Name of the created thing, if the result has one.
    pub name: Option<String>,
}
