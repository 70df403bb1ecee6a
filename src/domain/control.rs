//! What happens to a session from outside its calls: answers of people, phases, compactions, grants. Each is an event
//! of its call tree, so that a judgement made without knowing it is made again.

use super::{
    call::ApprovalStatus,
    fingerprint::Fingerprint,
    grant::Grant,
    ids::{CallId, SessionId, ToolName},
    pattern::Pattern,
    time::Timestamp,
};

/// Writes of one plan.
pub const PLAN_MAX: usize = 64;

/// What somebody did to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// A person answered the question that a call waits for.
    Answered {
        /// The question.
        approval_id: String,
        call_id: CallId,
        /// Yes or no.
        answer: ApprovalStatus,
        /// What the call is known again by.
        fingerprint: Fingerprint,
        /// The run of the tree's root in which it was answered, by the place of that run's first event.
        root_run: u64,
    },
    /// The session entered a phase, perhaps with the order of the writes to come.
    PhaseSet {
        phase: String,
        /// The plan; none leaves the one there was.
        plan: Option<Vec<ToolName>>,
    },
    /// The model's context was compacted.
    Compacted,
    /// Calls were granted.
    Granted(Grant),
    /// A grant was taken back.
    Revoked {
        /// The grant.
        id: String,
    },
}

impl Control {
    /// The name used in SQL and in the contract.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Answered { .. } => "answered",
            Self::PhaseSet { .. } => "phase_set",
            Self::Compacted => "compacted",
            Self::Granted(_) => "granted",
            Self::Revoked { .. } => "revoked",
        }
    }
}

/// Somebody did something to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controlled {
    /// Its place among the tree's events; the tree's version after it.
    pub seq: u64,
    /// When, by the database's time.
    pub at: Timestamp,
    /// Whose session.
    pub session: SessionId,
    /// Who did it; none when the plane or the asking call itself did.
    pub by: Option<String>,
    /// Why, in words.
    pub reason: Option<String>,
    /// What was done.
    pub control: Control,
}

/// True when both name one person or system: by another case nobody becomes somebody else.
#[must_use]
pub fn is_same_name(one: &str, other: &str) -> bool {
    one.trim().to_lowercase() == other.trim().to_lowercase()
}

/// Something to be done to a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Whose session.
    pub session: SessionId,
    /// Who wants it.
    pub by: String,
    /// Why, in words.
    pub reason: Option<String>,
    /// What.
    pub operation: Operation,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Answer the question that a call waits for.
    Answer {
        /// The question.
        approval_id: String,
        /// Yes or no.
        approve: bool,
    },
    /// Enter a phase, perhaps with the order of the writes to come.
    SetPhase {
        /// The phase.
        phase: String,
        /// The plan; none leaves the one there was.
        plan: Option<Vec<ToolName>>,
    },
    /// The model's context was compacted.
    MarkCompacted,
    /// Give calls.
    Grant {
        /// Names the grant.
        id: String,
        /// For which tools.
        tools: Pattern,
        /// How many.
        ceiling: u64,
        /// For how long, in milliseconds.
        ttl_ms: u64,
    },
    /// Take a grant back.
    Revoke {
        /// The grant.
        id: String,
    },
}
