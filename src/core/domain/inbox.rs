//! Approval requests and sessions as operators see them.

use super::{
    budget::Usage,
    calls::SessionStatus,
    closed_set::closed_set,
    control::EditedArguments,
    effect::{Effect, Resource},
    failure::FailureKind,
    finding::{self, Decision, Finding},
    fingerprint::ArgsDigest,
    ids::SessionId,
    outcome::{OutcomeStatus, Repeat},
    time::Timestamp,
    truncation::FullText,
};

/// An approval request with its call and their outcomes.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Id.
    pub approval_id: String,
    /// Requesting session.
    pub session: String,
    /// Its call tree's root.
    pub root: String,
    /// `seq` in its call tree.
    pub seq: u64,
    /// Requesting agent.
    pub agent: Option<String>,
    /// Public id of the requester's credential; none without authentication.
    pub asked_by: Option<String>,
    /// Host program of the agent, if known.
    pub host: Option<String>,
    pub call_id: String,
    pub tool: String,
    /// Stored arguments.
    pub arguments: String,
    /// Digest that an answer is bound to.
    pub args_digest: ArgsDigest,
    /// Effect of the call.
    pub effect: Effect,
    /// The agent's justification.
    pub justification: Option<String>,
    /// Findings of the rules.
    pub findings: Vec<Finding>,
    /// Time of the request.
    pub asked_at: Timestamp,
    /// Expiry, after which it counts as denied.
    pub expires_at: Timestamp,
    /// Version of the policy that required it.
    pub policy: String,
    /// Approvers so far, where another approval is needed.
    pub seconded_by: Vec<String>,
    /// Edited arguments, approved finally or by one of two approvers.
    pub edited: Option<EditedArguments>,
    /// Answer or withdrawal.
    pub resolution: Option<Resolution>,
}

closed_set! {
    /// State of an approval request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum QuestionState {
        /// Not answered.
        Pending = "pending",
        /// Approved.
        Approved = "approved",
        /// Approved with other arguments.
        Edited = "edited",
        /// Denied.
        Denied = "denied",
        /// Expired without an answer.
        Expired = "expired",
        /// Withdrawn by the requester.
        Withdrawn = "withdrawn",
    }
}

/// Filter of approval requests by their calls; a request matches all given fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApprovalFilter {
    pub tool: Option<String>,
    pub agent: Option<String>,
    /// A rule that requires the approval.
    pub rule: Option<String>,
    pub min_amount: Option<f64>,
    pub max_amount: Option<f64>,
}

impl ApprovalFilter {
    /// True for a request that matches, apart from its amount.
    #[must_use]
    pub fn matches(&self, question: &Question) -> bool {
        self.tool.as_ref().is_none_or(|tool| *tool == question.tool)
            && self.agent.as_ref().is_none_or(|agent| question.agent.as_ref() == Some(agent))
            && self.rule.as_ref().is_none_or(|rule| question.asking().any(|finding| finding.rule == rule.as_str()))
    }

    /// True where the amounts are limited.
    #[must_use]
    pub fn limits_amount(&self) -> bool {
        self.min_amount.is_some() || self.max_amount.is_some()
    }

    /// True for an amount within the limits; `amount` is read where there are any.
    #[must_use]
    pub fn matches_amount(&self, amount: impl FnOnce() -> Option<f64>) -> bool {
        if !self.limits_amount() {
            return true;
        }
        let is_in = |amount: f64| {
            self.min_amount.is_none_or(|min| amount >= min) && self.max_amount.is_none_or(|max| amount <= max)
        };
        amount().is_some_and(is_in)
    }
}

impl Question {
    /// The findings that require the approval.
    pub fn asking(&self) -> impl Iterator<Item = &Finding> {
        finding::asking(&self.findings)
    }

    /// The rule that requires the approval, the first of several.
    #[must_use]
    pub fn asking_rule(&self) -> Option<&str> {
        self.asking().next().map(|finding| &*finding.rule)
    }

    /// State at `now`.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> QuestionState {
        match &self.resolution {
            Some(resolution) => resolution.state,
            None if now >= self.expires_at => QuestionState::Expired,
            None => QuestionState::Pending,
        }
    }
}

/// The end of an approval request by answer or withdrawal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// Approved, edited, denied or withdrawn.
    pub state: QuestionState,
    /// Actor.
    pub by: String,
    /// Reason.
    pub reason: Option<String>,
    /// Time.
    pub at: Timestamp,
    /// Clearance: its resource (none: all of the tool's calls) and its expiry.
    pub clears: Option<(Option<Resource>, Timestamp)>,
    /// Expiry of an approval with edited arguments.
    pub edited_until: Option<Timestamp>,
}

/// A stored call: its last judgment and its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    pub session: String,
    /// Its call tree's root.
    pub root: String,
    /// `seq` in its call tree.
    pub seq: u64,
    pub call_id: String,
    pub run: Option<String>,
    pub agent: Option<String>,
    pub tool: String,
    /// Stored arguments.
    pub arguments: String,
    /// The agent's justification.
    pub justification: Option<String>,
    /// Time of the judgment.
    pub at: Timestamp,
    /// Applied decision.
    pub decision: Decision,
    /// Findings of the rules.
    pub findings: Vec<Finding>,
    /// Version of the judging policy.
    pub policy: String,
    /// Model usage before the call, as reported with the request.
    pub usage: Usage,
    /// Outcome.
    pub status: Option<OutcomeStatus>,
    /// Failure kind of an error.
    pub failure: Option<FailureKind>,
    /// Cost, and model usage during the call, as reported with the outcome.
    pub reported: Usage,
    /// Retry estimate: worthwhile or not, and the wait, in milliseconds. None where a limit decided.
    pub estimated: Option<(bool, u64)>,
    /// For a failure: the party that may repeat it.
    pub repeat: Option<Repeat>,
    /// True for a complete answer, as reported.
    pub is_complete: Option<bool>,
    /// Total number of matches, as reported.
    pub total_matches: Option<u64>,
    /// The answer of a success, or the error's text.
    pub result: Option<String>,
    /// Digests of the witness before and after, hexadecimal, if stored.
    pub witness: Option<String>,
    pub witness_after: Option<String>,
    /// Original size and digest of an answer that was truncated for storage.
    pub whole: Option<FullText>,
    /// True for a call that a person approved.
    pub approved: bool,
    /// Trace ids of the judgment and of the report, hexadecimal.
    pub trace: Option<String>,
    pub report_trace: Option<String>,
}

/// Summary of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLine {
    /// Name and list position.
    pub place: SessionPlace,
    /// First activity.
    pub created_at: Timestamp,
    /// Last activity of its call tree.
    pub last_at: Timestamp,
    /// Steps of its call tree.
    pub steps: u64,
    /// Permitted calls of its call tree.
    pub calls: u64,
    /// Calls of its call tree that have no outcome.
    pub open_calls: u32,
    /// Cost of its call tree, in micro-dollars.
    pub cost_micros: u64,
    pub parent: Option<String>,
    /// State.
    pub standing: SessionStatus,
    /// Agent, tool, decision and reason of its last call.
    pub agent: Option<String>,
    pub last_tool: Option<String>,
    pub last_decision: Option<Decision>,
    pub last_reason: Option<String>,
}

/// Totals of a call tree, beside those of each of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeTotals {
    /// Tokens of every kind.
    pub tokens: u64,
    /// Calls with a judgment REUSE, DENY or STOP; none where there are too many judgments to count.
    pub refused_calls: Option<u64>,
}

/// Position of a session in a list: by a total of its call tree, the root before its sub-agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlace {
    /// The total: time of the last activity (microseconds since the Unix epoch), micro-dollars, calls, or microseconds.
    pub key: i64,
    /// Its call tree's root.
    pub root: String,
    /// Depth below the root.
    pub depth: i32,
    pub session: String,
}

impl SessionPlace {
    /// Position of its call tree.
    #[must_use]
    pub fn tree(&self) -> (i64, String) {
        (self.key, self.root.clone())
    }
}

/// Query for approval requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalQuery {
    /// Only this one.
    pub approval_id: Option<String>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those of this tool.
    pub tool: Option<String>,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those in this state.
    pub state: Option<QuestionState>,
    /// Cursor: only those after this request, by its time and id.
    pub after: Option<(Timestamp, String)>,
    /// Maximum number of results.
    pub max: usize,
}
