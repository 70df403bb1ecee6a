//! One tool call: as it is asked for, as it is proposed to the rules, and as its tree remembers it.

use std::sync::Arc;

use super::{
    budget::Usage,
    effect::{Effect, Fresh},
    finding::{CallRef, Decision, Finding, Level},
    fingerprint::{ArgsDigest, Fingerprint, Witness},
    ids::{AgentId, CallId, HostName, ParameterName, RunId, SessionId, TenantId, ToolName, UserId},
    json::Json,
    outcome::{Outcome, OutcomeStatus},
    profile::FollowUp,
    reason::Reason,
    redaction::Secrets,
    similarity::Shape,
    time::Timestamp,
    tool::ToolSpec,
    violation::{CoercedField, Violation},
};

/// What an agent asks of the plane: may this call run?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whose plane.
    pub tenant: TenantId,
    /// Whose credential asks; none where nobody shows one.
    pub asked_by: Option<Arc<str>>,
    /// The conversation that asks.
    pub session: SessionId,
    /// The session that started this one; set once.
    pub parent: Option<SessionId>,
    /// The run of the session. Absent: the whole session is one.
    pub run: Option<RunId>,
    /// Who asks.
    pub agent: Option<AgentId>,
    /// For whom: by this what is stored of a person is found again.
    pub user: Option<UserId>,
    /// In what program it runs: told to people, and looked at by no rule.
    pub host: Option<HostName>,
    /// The call's id, chosen by the caller.
    pub call_id: CallId,
    pub tool: ToolName,
    /// Its arguments: an object.
    pub arguments: Json,
    /// The state of what it reads, by the caller's program.
    pub witness: Option<Box<str>>,
    /// What the model used since the last call.
    pub usage: Usage,
    /// What the caller thinks the call will cost, in micro-dollars.
    pub cost_estimate_micros: Option<u64>,
    /// Why the agent wants it; for people.
    pub justification: Option<String>,
    /// The agent says that it means to repeat an earlier call.
    pub repeat_intended: bool,
    /// By what the model itself can say so.
    pub sayable: Option<Box<Sayable>>,
    /// The phase that the session is in, when its caller keeps it.
    pub phase: Option<String>,
}

impl Request {
    /// A request that says no more than which call it is.
    #[must_use]
    pub fn new(tenant: TenantId, session: SessionId, call_id: CallId, tool: ToolName, arguments: Json) -> Self {
        Self {
            tenant,
            session,
            parent: None,
            run: None,
            agent: None,
            user: None,
            host: None,
            asked_by: None,
            call_id,
            tool,
            arguments,
            witness: None,
            usage: Usage::default(),
            cost_estimate_micros: None,
            justification: None,
            repeat_intended: false,
            sayable: None,
            phase: None,
        }
    }
}

/// Parameters that a caller has added to a tool for what its model has to say beside the arguments. A refusal names
/// them; nobody else has a use for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sayable {
    /// Why the call is needed.
    pub justification: Option<ParameterName>,
    /// That a repetition is meant.
    pub repeat: Option<ParameterName>,
}

/// A request with what the policy knows of its tool: what rules look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub request: Request,
    /// All its arguments in canonical form, as they will execute.
    pub canonical: Arc<str>,
    /// The same as they are stored and shown: without secrets.
    pub stored: Arc<str>,
    /// The secrets that were left out.
    pub secrets: Secrets,
    /// What its arguments look like, for calls that are nearly the same.
    pub shape: Arc<Shape>,
    /// For recognising repetition.
    pub fingerprint: Fingerprint,
    /// For binding an approval or a call_id.
    pub args_digest: ArgsDigest,
    /// What it would do to the world.
    pub effect: Effect,
    /// For a read: how long an earlier answer stands in for another.
    pub fresh: Fresh,
    /// The state of what it reads, before it runs.
    pub witness: Option<Witness>,
    /// What it is expected to cost, in micro-dollars.
    pub cost_micros: u64,
    /// What is known of its tool.
    pub spec: Arc<ToolSpec>,
    /// True when the policy declares its tool.
    pub declared: bool,
    /// True where its caller waits as it is told; else the model has to.
    pub caller_waits: bool,
    /// How large a previous result may be that is given again in its place, in bytes.
    pub answer_bytes_max: usize,
    /// What is wrong with its arguments.
    pub violations: Vec<Violation>,
    /// Values that had another type and were read as the right one.
    pub coerced: Vec<CoercedField>,
    /// Fields that the tool's schema does not know, and that were let through.
    pub unknown_fields: Vec<String>,
    /// True when its arguments were mended before they are to execute.
    pub repaired: bool,
}

/// The permission to execute a call once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// The n-th try of its occurrence, from 1.
    pub attempt: u32,
    /// The intended execution: the place of its first permit among the tree's events, or, for `once` tools, its number.
    pub occurrence: u64,
    /// Sent along with the execution.
    pub idempotency_key: String,
    /// When it was given.
    pub at: Timestamp,
    /// Its place among the tree's events.
    pub seq: u64,
    /// When its outcome counts as unknown.
    pub lease_until: Timestamp,
    /// What was reserved for it, in micro-dollars.
    pub reserved_micros: u64,
    /// The revision of its ledger row after this permit; 0 when it has none.
    pub ledger_revision: u64,
}

/// Where the question to a person stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalStatus {
    /// Nobody has answered.
    Pending,
    /// Yes; good for one permit.
    Approved,
    /// Yes, with other arguments: the call itself never runs.
    Edited,
    /// No.
    Denied,
    /// Who asked took the question back.
    Withdrawn,
}

impl ApprovalStatus {
    /// True while it may be answered, or its answer may still be used.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Approved)
    }
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Names it.
    pub id: String,
    /// What was answered.
    pub answer: ApprovalStatus,
    /// When an unanswered one counts as denied.
    pub expires_at: Timestamp,
    /// The policy under which it was asked, by its version.
    pub policy: Arc<str>,
    /// Why it was answered so, for the model.
    pub reason: Option<String>,
    /// Whose credential asked; none where nobody shows one.
    pub asked_by: Option<Arc<str>>,
    /// Who has said yes so far, where one yes is not enough: each with the digest of the arguments, where they are
    /// others than those that were asked about.
    pub seconded_by: Vec<(String, Option<ArgsDigest>)>,
}

/// A call as its tree remembers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub call_id: CallId,
    /// The `seq` of the first event of its run.
    pub run_from: u64,
    /// Shared by the calls of one model turn; its first call's place.
    pub batch: u64,
    /// Who asked.
    pub agent: Option<AgentId>,
    pub tool: ToolName,
    /// Its arguments in canonical form, while it is open or when it failed; a long text is not kept after a failure.
    pub arguments: Option<Arc<str>>,
    /// What its arguments look like, while detectors look back that far.
    pub shape: Option<Arc<Shape>>,
    /// For recognising repetition.
    pub fingerprint: Fingerprint,
    /// For binding an approval or a call_id.
    pub args_digest: ArgsDigest,
    /// What it does to the world.
    pub effect: Effect,
    /// The state of what it reads: before it runs, and then only where it was the same before and after. After a write,
    /// the state that it left.
    pub witness: Option<Witness>,
    /// The place of its first judgement among the tree's events.
    pub seq: u64,
    /// How often its call_id was judged.
    pub round: u32,
    /// When it was judged last.
    pub at: Timestamp,
    /// What was decided last, as applied (a shadowed refusal is the ALLOW that it was).
    pub decision: Decision,
    /// Why, when it was not simply allowed.
    pub reason: Option<Reason>,
    /// What the rules had to say when it was judged last.
    pub findings: Arc<[Finding]>,
    /// The permission it has.
    pub permit: Option<Permit>,
    /// The question to a person it waits for.
    pub approval: Option<Box<Approval>>,
    /// The policy that judged, by its version.
    pub policy: Arc<str>,
    /// What came of it.
    pub outcome: Option<Outcome>,
    /// The failure that it follows up on.
    pub follow_up: Option<Box<FollowUp>>,
}

/// Where a call stands at a given time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing<'a> {
    /// It was never permitted.
    Refused,
    /// It waits for a person.
    Held(&'a Approval),
    /// It may be running.
    InFlight,
    /// It may have happened.
    Unknown,
    /// It did what it should.
    Succeeded(&'a Outcome),
    /// It failed, and nothing happened.
    Failed(&'a Outcome),
    /// It was called off before it did anything.
    Cancelled,
}

impl Call {
    /// A call that was only reported, as far as its text for the model needs it.
    #[must_use]
    pub fn observed(proposal: &Proposal) -> Self {
        Self {
            call_id: proposal.request.call_id.clone(),
            run_from: 0,
            batch: 0,
            agent: proposal.request.agent.clone(),
            tool: proposal.request.tool.clone(),
            arguments: Some(proposal.canonical.clone()),
            shape: None,
            fingerprint: proposal.fingerprint,
            args_digest: proposal.args_digest,
            effect: proposal.effect.clone(),
            witness: None,
            seq: 0,
            round: 1,
            at: Timestamp::default(),
            decision: Decision::Allow,
            reason: None,
            findings: Arc::default(),
            permit: None,
            approval: None,
            policy: Arc::default(),
            outcome: None,
            follow_up: None,
        }
    }

    /// Where the call stands at `now`: a lease that ran out leaves it unknown, without anybody saying so.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> Standing<'_> {
        let Some(permit) = &self.permit else {
            return self.approval.as_deref().map_or(Standing::Refused, Standing::Held);
        };
        match &self.outcome {
            None if now < permit.lease_until => Standing::InFlight,
            None => Standing::Unknown,
            Some(outcome) => match outcome.status {
                OutcomeStatus::Success => Standing::Succeeded(outcome),
                OutcomeStatus::Error => Standing::Failed(outcome),
                OutcomeStatus::Cancelled => Standing::Cancelled,
                OutcomeStatus::Running | OutcomeStatus::Unknown => Standing::Unknown,
            },
        }
    }

    /// True when the call was asked for and not let through.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        self.permit.is_none()
    }

    /// True when the call was answered from memory.
    #[must_use]
    pub fn was_reused(&self) -> bool {
        self.was_refused() && self.decision == Decision::Reuse
    }

    /// The warning of `rule` that the model was given with this call, by its count.
    pub fn told(&self, rule: &str) -> impl Iterator<Item = u32> {
        let warnings =
            self.findings.iter().filter(move |f| f.enforced && f.rule == rule && f.level == Some(Level::Warning));
        warnings.filter_map(|finding| finding.count)
    }

    /// What came of it, when it did what it should.
    #[must_use]
    pub fn success(&self) -> Option<&Outcome> {
        self.outcome.as_ref().filter(|outcome| outcome.status == OutcomeStatus::Success)
    }

    /// True while the tree owes it an outcome.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.permit.is_some() && self.outcome.is_none()
    }

    /// A reference to it, as a call of `session`.
    #[must_use]
    pub fn reference(&self, session: &SessionId) -> CallRef {
        CallRef {
            session: session.clone(),
            call_id: self.call_id.clone(),
            at: self.permit.as_ref().map_or(self.at, |permit| permit.at),
        }
    }
}
