//! Audit log: operations of people and administrators as a hash chain. Each entry includes the hash of its predecessor,
//! so that changing or removing one is detected. Erasable texts enter by salted hash alone, so that the chain verifies
//! without them.

mod chain;

use std::fmt;

use super::{
    budget::Raise,
    call::ApprovalStatus,
    closed_set::closed_set,
    control::{Control, ControlEvent},
    grant::Grant,
    identity::{CredentialId, Identity},
    ids::SessionId,
    time::Timestamp,
};

pub use chain::{Anchor, ChainEntry, ChainVerification, ChainVerifier, HashedText, PROBLEMS_MAX};

closed_set! {
    /// Operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AuditOperation {
        /// An approval request was answered.
        Answered = "answered",
        /// An approval request was approved, and needs another approval.
        Seconded = "seconded",
        /// An approval request was withdrawn.
        Withdrawn = "withdrawn",
        /// An approver claimed an approval request.
        ApprovalClaimed = "approval_claimed",
        /// An approver released a claim.
        ApprovalReleased = "approval_released",
        /// Someone commented on an approval request.
        ApprovalCommented = "approval_commented",
        /// A session's phase was set.
        PhaseSet = "phase_set",
        /// An operator settled the outcome of a call.
        OutcomeSettled = "outcome_settled",
        /// Calls were granted.
        Granted = "granted",
        /// A grant was revoked.
        Revoked = "revoked",
        /// A session's budget was raised, or a raise was withdrawn.
        BudgetRaised = "budget_raised",
        /// Something was halted.
        Halted = "halted",
        /// A halt was lifted.
        Resumed = "resumed",
        /// A policy was stored.
        PolicyStored = "policy_stored",
        /// A policy was activated.
        PolicyActivated = "policy_activated",
        /// A credential was made.
        TokenCreated = "token_created",
        /// A credential was replaced.
        TokenRotated = "token_rotated",
        /// A credential was revoked.
        TokenRevoked = "token_revoked",
        /// A tenant was added.
        TenantCreated = "tenant_created",
        /// A tenant's limits were changed.
        TenantChanged = "tenant_changed",
        /// A tenant was shut out.
        TenantSuspended = "tenant_suspended",
        /// A tenant was let in again.
        TenantResumed = "tenant_resumed",
        /// A tenant was deleted.
        TenantDeleted = "tenant_deleted",
        /// The data of a subject was erased.
        Forgotten = "forgotten",
        /// The data of a subject was exported.
        Exported = "exported",
        /// The encryption key of stored texts was rotated.
        KeyRotated = "key_rotated",
        /// Retention periods were changed.
        RetentionChanged = "retention_changed",
        /// A test message was sent to a destination of notifications.
        NotificationTested = "notification_tested",
        /// A user signed in to the console.
        SignedIn = "signed_in",
        /// A user signed out of it.
        SignedOut = "signed_out",
        /// A description of a tool was accepted.
        ToolAccepted = "tool_accepted",
        /// A description of a tool was rejected.
        ToolRejected = "tool_rejected",
    }
}

/// Conditions on entries, all of which hold. Texts are parts, compared without regard to case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Part of the actor's name or credential.
    pub by: Option<String>,
    pub kind: Option<String>,
    /// Part of the session or of the description.
    pub subject: Option<String>,
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// The person or system behind an operation, and their credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Display name.
    pub name: String,
    /// Credential used.
    pub credential: CredentialId,
    /// Source address; none over a Unix socket, or on the machine of the database.
    pub from: Option<String>,
    /// Approver groups of the actor. Not stored.
    pub groups: Vec<String>,
}

impl Actor {
    /// The actor of an identity; `name` where the identity has none.
    #[must_use]
    pub fn of(identity: &Identity, name: &str) -> Self {
        let name = if identity.credential == CredentialId::Local { name } else { identity.name.as_str() };
        let (credential, from) = (identity.credential.clone(), identity.from.clone());
        Self { name: name.to_owned(), credential, from, groups: identity.groups.clone() }
    }
}

impl From<&str> for Actor {
    /// An actor who is identified by a self-given name alone.
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), credential: CredentialId::Local, from: None, groups: Vec::new() }
    }
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Token(id) => write!(f, "token {id}"),
            Self::Certificate(name) => write!(f, "certificate {name}"),
            Self::Jwt(subject) => write!(f, "jwt {subject}"),
            Self::Slack(user) => write!(f, "slack {user}"),
        }
    }
}

/// An audited operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// Its kind.
    pub kind: AuditOperation,
    /// Its actor.
    pub by: Actor,
    /// The one session that it concerns.
    pub session: Option<String>,
    /// Description: `tool pay`, `token cg_7f3a for agent billing`. Contains no secret and no part of an argument.
    pub what: String,
    /// Reason, in the actor's words.
    pub why: Option<String>,
}

impl AuditEvent {
    /// The audit event of a control event with a responsible person or system; none for a compaction, which is the
    /// agent's own.
    #[must_use]
    pub fn of(controlled: &ControlEvent) -> Option<Self> {
        let by = controlled.by.clone()?;
        let (kind, what) = match &controlled.control {
            Control::Answered { approval_id, call_id, edit: Some(edit), .. } => {
                let digests =
                    format!("digest {} instead of {}", hex::encode(edit.edited.digest.0), hex::encode(edit.asked.0));
                (
                    AuditOperation::Answered,
                    format!("approved {approval_id} with other arguments, {digests}: call {call_id}"),
                )
            }
            Control::Answered { approval_id, call_id, answer, clears, .. } => {
                let answer = if *answer == ApprovalStatus::Approved { "approved" } else { "denied" };
                let clears = clears.as_ref().map_or("", |clear| match clear.resource {
                    Some(_) => ", and for a time its tool on the same thing",
                    None => ", and for a time all calls of its tool",
                });
                (AuditOperation::Answered, format!("{answer} {approval_id}: call {call_id}{clears}"))
            }
            Control::Seconded { approval_id, call_id, edited } => {
                let with = edited
                    .as_ref()
                    .map(|edited| format!(" with other arguments, digest {}", hex::encode(edited.digest.0)));
                let with = with.unwrap_or_default();
                (
                    AuditOperation::Seconded,
                    format!("approved {approval_id}{with}, and another yes is needed: call {call_id}"),
                )
            }
            Control::Withdrawn { approval_id, call_id } => {
                (AuditOperation::Withdrawn, format!("{approval_id}: call {call_id}"))
            }
            Control::PhaseSet { phase, plan } => {
                let plan = plan.as_ref().map(|plan| format!(", with a plan of {} writes", plan.len()));
                (AuditOperation::PhaseSet, format!("phase {phase}{}", plan.unwrap_or_default()))
            }
            Control::Compacted => return None,
            Control::OutcomeSettled { call_id, status } => {
                (AuditOperation::OutcomeSettled, format!("call {call_id}: {}", status.as_str()))
            }
            Control::Granted(Grant { id, tools, ceiling, expires_at, .. }) => {
                let until = expires_at.as_millis();
                (AuditOperation::Granted, format!("{id}: {ceiling} calls of {}, until {until} ms", tools.as_str()))
            }
            Control::Revoked { id } => (AuditOperation::Revoked, id.clone()),
            Control::BudgetRaised(raise) => {
                let Raise { dimension, extra, .. } = *raise;
                let whose = raise.scope().as_str().replace('_', " ");
                let what = match extra {
                    0 => format!("{} of the {whose}: as the policy has it", dimension.as_str()),
                    extra => {
                        format!("{} of the {whose}: {} more", dimension.as_str(), dimension.describe_amount(extra))
                    }
                };
                (AuditOperation::BudgetRaised, what)
            }
        };
        let why = controlled.reason.as_deref().unwrap_or_default();
        Some(Self::new(kind, by, what).with_session(&controlled.session).because(why))
    }
}

/// Number of texts in an entry.
pub const WORDS: usize = 6;

impl AuditEvent {
    /// An operation of an actor.
    #[must_use]
    pub fn new(kind: AuditOperation, by: Actor, what: impl Into<String>) -> Self {
        Self { kind, by, session: None, what: what.into(), why: None }
    }

    /// About one session.
    #[must_use]
    pub fn with_session(mut self, session: &SessionId) -> Self {
        self.session = Some(session.to_string());
        self
    }

    /// With the actor's reason, unless it is empty.
    #[must_use]
    pub fn because(mut self, why: &str) -> Self {
        self.why = (!why.trim().is_empty()).then(|| why.to_owned());
        self
    }

    /// The texts in the order of an entry: name, credential, address, session, description, reason.
    #[must_use]
    pub fn texts(&self) -> [Option<String>; WORDS] {
        let Actor { name, credential, from, .. } = &self.by;
        let what = Some(self.what.clone());
        [Some(name.clone()), Some(credential.to_string()), from.clone(), self.session.clone(), what, self.why.clone()]
    }
}
