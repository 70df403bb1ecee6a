//! Control events: changes to a session from outside its calls, such as answers to approval requests, phases,
//! compactions and grants. Each is an event of its call tree, so that a concurrent judgment conflicts and is repeated.

use std::sync::Arc;

use super::{
    audit::Actor,
    budget::{BudgetScope, Dimension, Raise},
    call::ApprovalStatus,
    effect::Resource,
    fingerprint::{ArgsDigest, Fingerprint},
    grant::Grant,
    ids::{CallId, SessionId, ToolName},
    outcome::OutcomeStatus,
    pattern::Pattern,
    time::Timestamp,
};

/// Maximum number of writes in a plan.
pub const PLAN_MAX: usize = 64;

/// Kind of a control event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// A person answered an approval request.
    Answered {
        /// Its id.
        approval_id: String,
        call_id: CallId,
        /// Approved or denied.
        answer: ApprovalStatus,
        /// Fingerprint of the call.
        fingerprint: Fingerprint,
        /// The root's run in which it was answered, by the `seq` of that run's first event.
        root_run: u64,
        /// Calls that an approval clears in addition.
        clears: Option<Clearance>,
        /// Call approved in its place.
        edit: Option<Box<Edit>>,
    },
    /// A person approved a request that needs another approval.
    Seconded {
        /// Its id.
        approval_id: String,
        call_id: CallId,
        /// The edited arguments of this approval, if any.
        edited: Option<EditedArguments>,
    },
    /// The requester withdrew an approval request.
    Withdrawn {
        /// Its id.
        approval_id: String,
        call_id: CallId,
    },
    /// The session entered a phase, optionally with a plan of the writes to come.
    PhaseSet {
        phase: String,
        /// The plan; none keeps the previous one.
        plan: Option<Vec<ToolName>>,
    },
    /// The model's context was compacted.
    Compacted,
    /// An operator settled the outcome of a call.
    OutcomeSettled {
        call_id: CallId,
        /// The settled outcome.
        status: OutcomeStatus,
    },
    /// Calls were granted.
    Granted(Grant),
    /// A grant was revoked.
    Revoked {
        /// The grant.
        id: String,
    },
    /// A budget was raised, or a raise was withdrawn.
    BudgetRaised(Raise),
}

impl Control {
    /// The arguments that a person chose.
    pub fn chosen_mut(&mut self) -> Option<&mut Arc<str>> {
        match self {
            Self::Answered { edit: Some(edit), .. } => edit.edited.arguments.as_mut(),
            Self::Seconded { edited: Some(edited), .. } => edited.arguments.as_mut(),
            _ => None,
        }
    }

    /// The name used in SQL and in the contract.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Answered { .. } => "answered",
            Self::Seconded { .. } => "seconded",
            Self::Withdrawn { .. } => "withdrawn",
            Self::PhaseSet { .. } => "phase_set",
            Self::Compacted => "compacted",
            Self::OutcomeSettled { .. } => "outcome_settled",
            Self::Granted(_) => "granted",
            Self::Revoked { .. } => "revoked",
            Self::BudgetRaised(_) => "budget_raised",
        }
    }
}

/// A control event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlEvent {
    /// `seq` in its tree; equals the tree's version after it.
    pub seq: u64,
    /// Time, by the database's clock.
    pub at: Timestamp,
    /// The session.
    pub session: SessionId,
    /// The actor; none for the server or the requesting call itself. Read back, only the name.
    pub by: Option<Actor>,
    /// Reason.
    pub reason: Option<String>,
    /// Operation.
    pub control: Control,
}

/// Arguments that an approver chose in place of the requested ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedArguments {
    /// Digest of the tool and all arguments, as they will execute.
    pub digest: ArgsDigest,
    /// Whole canonical form. Absent when read back into a call tree, and after the retention period.
    pub arguments: Option<Arc<str>>,
}

/// A person's approval with edited arguments: the requested call never runs, and one with these arguments runs once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Digest of the requested arguments.
    pub asked: ArgsDigest,
    pub edited: EditedArguments,
    /// Expiry.
    pub until: Timestamp,
    /// Version of the policy that required the approval.
    pub policy: String,
    /// The rules that required it; another rule needs another approval.
    pub rules: Vec<String>,
    /// True when it was used, as read back.
    pub is_used: bool,
}

/// Scope and duration of the clearance that an approval gives beyond the one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClearanceTerms {
    pub scope: ClearanceScope,
    /// In milliseconds.
    pub ttl_ms: u64,
}

/// Calls of the tool that are cleared, within the requesting session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearanceScope {
    /// Those on the resource of the call.
    Resource,
    /// All.
    Tool,
}

/// Clearance: calls that need no further approval after one was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clearance {
    /// Session.
    pub session: SessionId,
    /// Tool.
    pub tool: ToolName,
    /// Resource; any, when absent.
    pub resource: Option<Resource>,
    /// Expiry.
    pub until: Timestamp,
    /// Version of the policy that required the approval.
    pub policy: String,
    /// The rules that required it; another rule needs another approval.
    pub rules: Vec<String>,
}

/// True when both name one person or system, regardless of case.
#[must_use]
pub fn is_same_name(one: &str, other: &str) -> bool {
    one.trim().to_lowercase() == other.trim().to_lowercase()
}

/// True for the same name, or for one below the other, as a sub-agent's is (`planner/search`).
#[must_use]
pub fn is_same_side(one: &str, other: &str) -> bool {
    let (one, other) = (one.trim().to_lowercase(), other.trim().to_lowercase());
    let is_below = |below: &str, above: &str| below.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
    one == other || is_below(&one, &other) || is_below(&other, &one)
}

impl ControlEvent {
    /// The clearance of an approval: its resource (none: all of the tool's calls) and its expiry.
    #[must_use]
    pub fn clears(&self) -> Option<(Option<Resource>, Timestamp)> {
        let Control::Answered { clears: Some(clear), .. } = &self.control else { return None };
        Some((clear.resource.clone(), clear.until))
    }

    /// The edit of an approval.
    #[must_use]
    pub fn edit(&self) -> Option<&Edit> {
        let Control::Answered { edit, .. } = &self.control else { return None };
        edit.as_deref()
    }
}

/// A command on a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// The session.
    pub session: SessionId,
    /// The actor.
    pub by: Actor,
    /// Reason.
    pub reason: Option<String>,
    /// Operation.
    pub operation: Operation,
}

/// Operation of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Answer an approval request.
    Answer {
        /// Its id.
        approval_id: String,
        /// True to approve, false to deny.
        approve: bool,
        /// Additional clearance of an approval.
        clears: Option<ClearanceTerms>,
        /// Edited arguments, if any.
        edited: Option<EditedArguments>,
    },
    /// Approve a request together with others.
    ApproveInBulk {
        /// Its id.
        approval_id: String,
        /// Digest of the arguments that the approver saw.
        seen: ArgsDigest,
        /// True when the arguments may hold an amount.
        may_have_amount: bool,
    },
    /// Approve a call's request on behalf of the user of the agent's host.
    HostApprove {
        /// The call.
        call_id: CallId,
    },
    /// Withdraw an approval request.
    Withdraw {
        /// Its id.
        approval_id: String,
    },
    /// Enter a phase, optionally with a plan of the writes to come.
    SetPhase {
        /// The phase.
        phase: String,
        /// The plan; none keeps the previous one.
        plan: Option<Vec<ToolName>>,
    },
    /// The model's context was compacted.
    MarkCompacted,
    /// Grant calls.
    Grant {
        /// Id of the grant.
        id: String,
        /// Tools.
        tools: Pattern,
        /// Number of calls.
        ceiling: u64,
        /// Lifetime, in milliseconds.
        ttl_ms: u64,
    },
    /// Revoke a grant.
    Revoke {
        /// Its id.
        id: String,
    },
    /// Raise a budget of the session's run, or of its call tree.
    RaiseBudget {
        /// Run or call tree.
        scope: BudgetScope,
        /// Dimension.
        dimension: Dimension,
        /// Total amount above the policy's limit; 0 withdraws the raise.
        extra: u64,
    },
}
