//! The kill switch: what is halted, for whom.

use super::{
    ids::{AgentId, SessionId, ToolName},
    time::Timestamp,
};

/// Halts that hold at once for one tenant.
pub const HALTS_MAX: usize = 1_000;

/// What a halt stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Halted {
    /// One session and all sub-agents below it.
    Session(SessionId),
    /// Every session's calls of one agent.
    Agent(AgentId),
    /// Every call of one tool.
    Tool(ToolName),
    /// Every call of the tenant.
    Tenant,
}

impl Halted {
    /// Every kind's name.
    pub const KINDS: [&'static str; 4] = ["session", "agent", "tool", "tenant"];

    /// The kind's name, used in SQL, texts and the contract.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Session(_) => "session",
            Self::Agent(_) => "agent",
            Self::Tool(_) => "tool",
            Self::Tenant => "tenant",
        }
    }

    /// For people: `tool pay`, `everything`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Tenant => "everything".to_owned(),
            named => format!("{} {}", named.kind(), named.name()),
        }
    }

    /// The name of what is halted; empty for the tenant.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Session(id) => id.as_str(),
            Self::Agent(id) => id.as_str(),
            Self::Tool(name) => name.as_str(),
            Self::Tenant => "",
        }
    }
}

/// A halt that holds until somebody resumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// What is halted.
    pub what: Halted,
    /// Who halted it.
    pub by: String,
    /// Why, for the model and for people; may be empty.
    pub reason: String,
    /// Since when.
    pub at: Timestamp,
}
