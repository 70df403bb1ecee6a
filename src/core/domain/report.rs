//! What a caller says about a call.

use super::{
    audit::Actor,
    budget::Usage,
    call::Proposal,
    failure::ErrorReport,
    ids::{CallId, SessionId},
    outcome::OutcomeStatus,
};

/// What a caller says about a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whose call.
    pub session: SessionId,
    /// The call.
    pub call_id: CallId,
    /// What came of it.
    pub status: OutcomeStatus,
    /// What went wrong, for errors; may go with `unknown`.
    pub error: Option<ErrorReport>,
    /// The whole answer, as JSON text or plain text.
    pub result: Option<String>,
    /// The state of what the call read, after it, by the caller's program.
    pub witness_after: Option<Box<str>>,
    /// A digest of the answer by the caller, when the answer itself stays with it.
    pub result_digest: Option<String>,
    /// Size of the whole answer, in bytes.
    pub result_bytes: Option<u64>,
    /// Does the answer hold everything there is?
    pub is_complete: Option<bool>,
    /// How many matches there are in all.
    pub total_matches: Option<u64>,
    /// How far a running call has come.
    pub progress_note: Option<String>,
    /// Model usage since the last call, and the actual cost of this one.
    pub usage: Usage,
    /// Nobody reports: the lease ran out.
    pub by_lease: bool,
    /// How long the call took, in milliseconds.
    pub duration_ms: Option<u64>,
    /// For a cancelled call: its caller knows that it never ran.
    pub not_started: bool,
    /// The caller's program declares that the tool changes nothing.
    pub read_only: bool,
    /// The execution received the idempotency key.
    pub key_sent: bool,
    /// For a call that nobody asked about: what it was.
    pub observed: Option<Box<Proposal>>,
    /// Who says so, when it is an operator and not the call's own caller.
    pub by: Option<Operator>,
}

/// An operator who settles what nobody else can know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Who.
    pub by: Actor,
    /// How they know.
    pub reason: Option<String>,
}

impl Report {
    /// A report that says no more than what came of the call.
    #[must_use]
    pub fn new(session: SessionId, call_id: CallId, status: OutcomeStatus) -> Self {
        Self {
            session,
            call_id,
            status,
            error: None,
            result: None,
            witness_after: None,
            result_digest: None,
            result_bytes: None,
            is_complete: None,
            total_matches: None,
            progress_note: None,
            usage: Usage::default(),
            by_lease: false,
            duration_ms: None,
            not_started: false,
            read_only: false,
            key_sent: false,
            observed: None,
            by: None,
        }
    }
}
