//! Why something is not done that was asked for: the caller's own doing, and nothing was decided or stored. One type an
//! operation, each variant with one code and reason of the contract.

use super::{
    budget::{Dimension, Scope},
    ids::SessionId,
    tenant::Quota,
    time::Timestamp,
    violation::Violation,
};

/// A session cannot be part of its call tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRejection {
    /// The session has another parent; it is set once.
    ParentChanged {
        /// The parent it has.
        known: Option<SessionId>,
    },
    /// The tree has as many sessions as it may.
    TooManySessions,
}

/// A call cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvaluateRejection {
    /// The call_id belongs to a call with other arguments.
    CallIdReused,
    /// The tree has as many open calls as it may.
    TooManyOpenCalls,
    /// It would begin a call tree or ask a question, and its tenant has as many of these as it may.
    QuotaExceeded(Quota),
    /// Its session has no place in the tree.
    Session(SessionRejection),
}

/// A report cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordRejection {
    /// Nobody asked for that call, and the report does not say what it was.
    UnknownCall,
    /// The call was refused: there is nothing to report on.
    NotPermitted,
    /// The call was reported on before, with another outcome.
    AlreadySettled,
    /// A newer attempt of the same execution was permitted meanwhile.
    AttemptSuperseded,
    /// The session of an observed call has no place in the tree.
    Session(SessionRejection),
}

/// A command of a person or a system cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandRejection {
    /// Nobody has heard of the session, and the command does not begin one.
    UnknownSession,
    /// The session's phase cannot become that one; says why.
    PhaseForbidden(String),
    /// The tree holds as many grants as it may.
    TooManyGrants,
    /// No such grant.
    UnknownGrant,
    /// The budget cannot be raised.
    NotRaised(NotRaised),
    /// No call waits for that answer.
    UnknownApproval,
    /// The call names no thing that an answer could hold for.
    NothingNamed,
    /// The question was answered before.
    AlreadyAnswered {
        /// With yes.
        approved: bool,
        /// To other arguments.
        edited: bool,
        /// By whom, where that is known: a call tree remembers what was answered and not who did.
        by: Option<String>,
    },
    /// Who asked took the question back.
    Withdrawn {
        /// Who, where that is known.
        by: Option<String>,
    },
    /// Nobody answered the question in time.
    ApprovalExpired,
    /// Who asked cannot answer.
    SelfApproval,
    /// The question is for people of other groups than those they are in.
    NotInGroup {
        /// Whose members may answer now.
        groups: Vec<String>,
        /// Whose members may answer later, and when.
        later: Option<(String, Timestamp)>,
    },
    /// What two people must approve is approved for the one call alone.
    ScopeForTwo,
    /// They have said yes to the very same before, and another one is waited for.
    SaidBefore,
    /// The arguments that somebody chose are not taken.
    Edit(EditRejection),
    /// Only who asked can take the question back.
    NotTheAsker,
    /// The policy wants a reason with a refusal.
    ReasonMissing,
}

/// Why a budget cannot be raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRaised {
    /// The policy sets no such limit.
    NoSuchLimit {
        /// Of whom.
        scope: Scope,
        /// Of what.
        dimension: Dimension,
    },
    /// The session is in no run.
    NoRun,
    /// As many budgets of the tree are raised as may be.
    TooMany,
}

/// Arguments that a person chose instead of those that were asked about are not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditRejection {
    /// Another yes was said before, to other arguments than this one.
    OtherArguments {
        /// By whom.
        by: String,
    },
    /// They are not what the tool takes.
    Invalid(Vec<Violation>),
    /// The call with them would be refused; says why.
    Refused(String),
    /// The user of the agent's host may be answering at a prompt, which does not hear of it.
    AtHost,
    /// Parts of them are not stored, and so cannot be given to the model; names them.
    NotStored(Vec<String>),
}

/// Nobody has heard of that session.
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
