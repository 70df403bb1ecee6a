//! Kill switch: halts of a session, an agent, a tool or a tenant.

use super::{
    ids::{AgentId, SessionId, ToolName},
    time::Timestamp,
};

/// Maximum number of active halts per tenant.
pub const HALTS_MAX: usize = 1_000;

/// Target of a halt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HaltTarget {
    /// One session and all sub-agents below it.
    Session(SessionId),
    /// Every session's calls of one agent.
    Agent(AgentId),
    /// Every call of one tool.
    Tool(ToolName),
    /// Every call of the tenant.
    Tenant,
}

impl HaltTarget {
    /// Every kind's name.
    pub const KINDS: [&'static str; 4] = ["session", "agent", "tool", "tenant"];

    /// The kind's name, used in SQL, texts and the contract.
    #[must_use]
    pub const fn kind_name(&self) -> &'static str {
        match self {
            Self::Session(_) => "session",
            Self::Agent(_) => "agent",
            Self::Tool(_) => "tool",
            Self::Tenant => "tenant",
        }
    }

    /// For people: `tool pay`, `everything`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Tenant => "everything".to_owned(),
            named => format!("{} {}", named.kind_name(), named.name()),
        }
    }

    /// The name of the target; empty for the tenant.
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

/// A halt, active until resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// Target.
    pub what: HaltTarget,
    /// Actor.
    pub by: String,
    /// Reason, for the model and for people; may be empty.
    pub reason: String,
    /// Start.
    pub at: Timestamp,
}
