//! What happens to a session from outside its calls: answers of people, phases, compactions, grants. Each is an event
//! of its call tree, so that a judgement made without knowing it is made again.

use std::sync::Arc;

use super::{
    audit::Actor,
    budget::{Dimension, Raise, Scope},
    call::ApprovalStatus,
    effect::Resource,
    fingerprint::{ArgsDigest, Fingerprint},
    grant::Grant,
    ids::{CallId, SessionId, ToolName},
    outcome::OutcomeStatus,
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
        /// What else a yes lets through.
        clears: Option<Clearance>,
        /// What was approved instead of the call.
        edit: Option<Box<Edit>>,
    },
    /// A person said yes to a question that needs the yes of another one, too.
    Seconded {
        /// The question.
        approval_id: String,
        call_id: CallId,
        /// The arguments that it is for, where they are others than those that were asked about.
        edited: Option<Edited>,
    },
    /// Who asked took the question back that a call waited for.
    Withdrawn {
        /// The question.
        approval_id: String,
        call_id: CallId,
    },
    /// The session entered a phase, perhaps with the order of the writes to come.
    PhaseSet {
        phase: String,
        /// The plan; none leaves the one there was.
        plan: Option<Vec<ToolName>>,
    },
    /// The model's context was compacted.
    Compacted,
    /// An operator said what came of a call.
    OutcomeSettled {
        call_id: CallId,
        /// What came of it.
        status: OutcomeStatus,
    },
    /// Calls were granted.
    Granted(Grant),
    /// A grant was taken back.
    Revoked {
        /// The grant.
        id: String,
    },
    /// A budget was raised, or what it was raised by was taken back.
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

/// Somebody did something to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controlled {
    /// Its place among the tree's events; the tree's version after it.
    pub seq: u64,
    /// When, by the database's time.
    pub at: Timestamp,
    /// Whose session.
    pub session: SessionId,
    /// Who did it; none when the plane or the asking call itself did. Read back, it is the name alone.
    pub by: Option<Actor>,
    /// Why, in words.
    pub reason: Option<String>,
    /// What was done.
    pub control: Control,
}

/// Arguments that a person chose instead of those that were asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// Of the tool and all of them, as they will execute.
    pub digest: ArgsDigest,
    /// In canonical form, whole. Absent when read back into a call tree, and past their term.
    pub arguments: Option<Arc<str>>,
}

/// A person's yes to a call with other arguments: the call that was asked about never runs, and one with these does,
/// once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The call as it was asked about.
    pub asked: ArgsDigest,
    pub edited: Edited,
    /// Until when it may be used.
    pub until: Timestamp,
    /// Under the policy that asked, by its version.
    pub policy: String,
    /// The rules that asked: what another one asks is another question.
    pub rules: Vec<String>,
    /// True when it was used, as read back.
    pub is_used: bool,
}

/// What a person's yes lets through beyond the one call, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clears {
    pub scope: ClearanceScope,
    /// In milliseconds.
    pub ttl_ms: u64,
}

/// Which calls of the tool are let through, all of the asking session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearanceScope {
    /// Those on the thing that the call names.
    Resource,
    /// All.
    Tool,
}

/// Calls that no person is asked about any more, since one has said yes to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clearance {
    /// Whose calls.
    pub session: SessionId,
    /// Of which tool.
    pub tool: ToolName,
    /// On which thing; any, when absent.
    pub resource: Option<Resource>,
    /// Until when.
    pub until: Timestamp,
    /// Under the policy that asked, by its version.
    pub policy: String,
    /// The rules that asked: what another one asks is another question.
    pub rules: Vec<String>,
}

/// True when both name one person or system: by another case nobody becomes somebody else.
#[must_use]
pub fn is_same_name(one: &str, other: &str) -> bool {
    one.trim().to_lowercase() == other.trim().to_lowercase()
}

/// True when both are on one side: the same name, or one below the other, as a sub-agent's is (`planner/search`).
#[must_use]
pub fn is_same_side(one: &str, other: &str) -> bool {
    let (one, other) = (one.trim().to_lowercase(), other.trim().to_lowercase());
    let is_below = |below: &str, above: &str| below.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
    one == other || is_below(&one, &other) || is_below(&other, &one)
}

impl Controlled {
    /// What a yes cleared: the thing, or none for all of the tool's calls, and until when.
    #[must_use]
    pub fn clears(&self) -> Option<(Option<Resource>, Timestamp)> {
        let Control::Answered { clears: Some(clear), .. } = &self.control else { return None };
        Some((clear.resource.clone(), clear.until))
    }

    /// What was approved instead of the call.
    #[must_use]
    pub fn edit(&self) -> Option<&Edit> {
        let Control::Answered { edit, .. } = &self.control else { return None };
        edit.as_deref()
    }
}

/// Something to be done to a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Whose session.
    pub session: SessionId,
    /// Who wants it.
    pub by: Actor,
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
        /// What else a yes is to let through.
        clears: Option<Clears>,
        /// With which arguments, where not with those of the call.
        edited: Option<Edited>,
    },
    /// Answer the question that a call waits for with yes, as the user of the agent's host did.
    HostApprove {
        /// The call.
        call_id: CallId,
    },
    /// Take back the question that a call waits for.
    Withdraw {
        /// The question.
        approval_id: String,
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
    /// Raise a budget of the session's run, or of its call tree.
    RaiseBudget {
        /// Which of the two.
        scope: Scope,
        /// Of what.
        dimension: Dimension,
        /// How much more than the policy's limit, in all; 0 takes back what was given before.
        extra: u64,
    },
}
