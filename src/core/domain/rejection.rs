//! Rejections of invalid operations: the caller's fault, with nothing decided or stored. One type per operation; each
//! variant has one code and reason of the contract.

use super::{
    budget::{BudgetScope, Dimension},
    ids::SessionId,
    tenant::Quota,
    time::Timestamp,
    violation::Violation,
};

/// A session cannot join its call tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRejection {
    /// The session has another parent; it is set once.
    ParentChanged {
        /// Its existing parent.
        known: Option<SessionId>,
    },
    /// The tree has the maximum number of sessions.
    TooManySessions,
}

/// A call cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvaluateRejection {
    /// The call_id belongs to a call with other arguments.
    CallIdReused,
    /// The tree has the maximum number of open calls.
    TooManyOpenCalls,
    /// The call tree has begun by another version of the policy meanwhile: the same call may be sent again.
    OtherVersion,
    /// A new call tree or approval request would exceed the tenant's quota.
    QuotaExceeded(Quota),
    /// The session cannot join the tree.
    Session(SessionRejection),
}

/// A report cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordRejection {
    /// Unknown call, and the report does not describe it.
    UnknownCall,
    /// The call was refused, so it has no outcome.
    NotPermitted,
    /// The call has another outcome already.
    AlreadySettled,
    /// A newer attempt of the same execution was permitted.
    AttemptSuperseded,
    /// The session of an observed call cannot join the tree.
    Session(SessionRejection),
}

/// A command cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandRejection {
    /// The session is unknown, and the command does not create one.
    UnknownSession,
    /// The session's phase cannot change like that; with the cause.
    PhaseForbidden(String),
    /// The tree has the maximum number of grants.
    TooManyGrants,
    /// Unknown grant.
    UnknownGrant,
    /// The budget cannot be raised.
    NotRaised(BudgetNotRaised),
    /// Unknown approval request.
    UnknownApproval,
    /// The call names no resource for a clearance.
    NothingNamed,
    /// The request is answered already.
    AlreadyAnswered {
        /// Approved or denied.
        approved: bool,
        /// With edited arguments.
        edited: bool,
        /// The approver, if known: a call tree keeps the answer only.
        by: Option<String>,
    },
    /// The requester withdrew the request.
    Withdrawn {
        /// The requester, if known.
        by: Option<String>,
    },
    /// The request has expired.
    ApprovalExpired,
    /// A requester cannot answer its own request.
    SelfApproval,
    /// The request is for approvers of other groups.
    NotInGroup {
        /// Groups that may answer now.
        groups: Vec<String>,
        /// The escalation group, and the time from which it may answer.
        later: Option<(String, Timestamp)>,
    },
    /// An approval by two people has no wider clearance.
    ScopeForTwo,
    /// The same approver has approved already; another one is needed.
    SaidBefore,
    /// The edited arguments are rejected.
    Edit(EditRejection),
    /// Only the requester can withdraw the request.
    NotTheAsker,
    /// The policy requires a reason for a denial.
    ReasonMissing,
    /// The request cannot be approved together with others.
    Bulk(BulkRejection),
    /// Another approver has claimed the request.
    Claimed {
        by: String,
        /// Expiry of the claim.
        until: Timestamp,
    },
    /// The request has the maximum number of comments.
    TooManyComments,
}

/// An approval request cannot be approved together with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkRejection {
    /// The arguments are other ones than the approver saw.
    ArgumentsChanged,
    /// Two people must approve it.
    TwoPeople,
    /// A call of a `once` tool with an amount.
    OnceWithAmount,
    /// A rule that requires the approval does not permit bulk approval.
    NotPermitted,
}

/// A budget cannot be raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetNotRaised {
    /// The policy has no such limit.
    NoSuchLimit {
        /// Scope.
        scope: BudgetScope,
        /// Dimension.
        dimension: Dimension,
    },
    /// The session is in no run.
    NoRun,
    /// The tree has the maximum number of raised budgets.
    TooMany,
}

/// Edited arguments are rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditRejection {
    /// The first approval has other arguments.
    OtherArguments {
        /// First approver.
        by: String,
    },
    /// They violate the tool's schema.
    Invalid(Vec<Violation>),
    /// The edited call would be refused; with the cause.
    Refused(String),
    /// The user of the agent's host may be answering at a prompt, which cannot show the edit.
    AtHost,
    /// Parts of them are not stored, and so cannot be given to the model; with their names.
    NotStored(Vec<String>),
}

/// Unknown session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionUnknown;

impl From<SessionRejection> for EvaluateRejection {
    fn from(rejection: SessionRejection) -> Self {
        Self::Session(rejection)
    }
}

impl From<SessionRejection> for RecordRejection {
    fn from(rejection: SessionRejection) -> Self {
        Self::Session(rejection)
    }
}
