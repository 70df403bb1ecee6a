//! Questions to people and sessions, as operators see them.

use super::{
    finding::{Decision, Finding},
    ids::SessionId,
    outcome::OutcomeStatus,
    time::Timestamp,
};

/// A question to a person, with its call and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Names it.
    pub approval_id: String,
    /// The session that asks.
    pub session: String,
    /// Its call tree's root.
    pub root: String,
    /// The agent that asks.
    pub agent: Option<String>,
    pub call_id: String,
    pub tool: String,
    /// Its arguments, as they are stored.
    pub arguments: String,
    /// Why the agent wants it.
    pub justification: Option<String>,
    /// What the rules had to say.
    pub findings: Vec<Finding>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it counts as denied.
    pub expires_at: Timestamp,
    /// The policy that asked.
    pub policy: String,
    /// What was answered.
    pub resolution: Option<Resolution>,
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// Yes.
    pub approved: bool,
    /// Who answered.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// A stored call, as it was judged last, with what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    pub session: String,
    /// Its call tree's root.
    pub root: String,
    /// Its place among the events of its call tree.
    pub seq: u64,
    pub call_id: String,
    pub run: Option<String>,
    pub agent: Option<String>,
    pub tool: String,
    /// Its arguments, as they are stored.
    pub arguments: String,
    /// Why the agent wanted it.
    pub justification: Option<String>,
    /// When it was judged.
    pub at: Timestamp,
    /// What held.
    pub decision: Decision,
    /// What the rules had to say.
    pub findings: Vec<Finding>,
    /// The policy that judged.
    pub policy: String,
    /// What came of it.
    pub status: Option<OutcomeStatus>,
    /// The answer of a success, or the error's text.
    pub result: Option<String>,
}

/// A session in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLine {
    pub session: String,
    /// Its call tree's root.
    pub root: String,
    /// When it was first heard of.
    pub created_at: Timestamp,
    /// When its call tree was last heard of.
    pub last_at: Timestamp,
    /// Steps of its call tree.
    pub steps: u64,
    /// Permitted calls of its call tree.
    pub calls: u64,
    /// Calls of its call tree that have no outcome.
    pub open_calls: u32,
    /// What its call tree has cost, in micro-dollars.
    pub cost_micros: u64,
}

/// Which questions are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only this one.
    pub approval_id: Option<String>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those that nobody has answered and that have not expired.
    pub pending: bool,
    /// At most so many.
    pub max: usize,
}
