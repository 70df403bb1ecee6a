//! What happened in a call tree. A tree is the fold of its events; the store appends them and never changes one.

use std::sync::Arc;

use super::{
    answer::Marks,
    budget::{CounterAdd, Spent, Usage},
    call::{Approval, Permit, Proposal},
    control::Controlled,
    effect::Effect,
    failure::FailureKind,
    finding::{Decision, Finding},
    fingerprint::{ArgsDigest, Fingerprint, ResultDigest, Witness},
    gist::Gist,
    grant::Use,
    ids::{AgentId, CallId, HostName, RunId, SessionId, TenantId, ToolName, TraceId, UserId},
    ledger::LedgerChange,
    outcome::{Advice, OutcomeStatus},
    profile::{Circumstances, FollowUp},
    reason::Reason,
    shard::Shard,
    similarity::Shape,
    time::Timestamp,
    violation::SelfCorrection,
    whole::Whole,
};

/// A call was judged. The same call_id may be judged again: after a wait, or as a repetition of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// Its place among the tree's events; the tree's version after it.
    pub seq: u64,
    /// When, by the database's time.
    pub at: Timestamp,
    /// Whose call.
    pub session: SessionId,
    /// Who started that session.
    pub parent: Option<SessionId>,
    /// How deep that session is nested; a root is 0.
    pub depth: u32,
    /// The run of the session.
    pub run: Option<RunId>,
    /// The `seq` of the run's first event.
    pub run_from: u64,
    /// True when the session was idle before, so that loops are weighed from here on.
    pub resumes: bool,
    /// Who asked.
    pub agent: Option<AgentId>,
    /// For whom. Absent when read back.
    pub user: Option<UserId>,
    /// In what program who asked runs. Absent when read back.
    pub host: Option<HostName>,
    pub call_id: CallId,
    /// The n-th judgement of this call_id, from 1.
    pub round: u32,
    /// Shared by the calls of one model turn; the place of the first of them.
    pub batch: u64,
    pub tool: ToolName,
    /// For recognising repetition.
    pub fingerprint: Fingerprint,
    /// For binding an approval or a call_id.
    pub args_digest: ArgsDigest,
    /// What it does to the world.
    pub effect: Effect,
    /// The state of what it reads, before it runs.
    pub witness: Option<Witness>,
    /// The decision as applied.
    pub decision: Decision,
    /// The decision that the policy would have made; differs in shadow mode only.
    pub would: Decision,
    /// Why, when the policy did not simply allow.
    pub reason: Option<Reason>,
    /// Everything the rules had to say.
    pub findings: Arc<[Finding]>,
    /// The permission given.
    pub permit: Option<Permit>,
    /// The question to a person.
    pub approval: Option<Box<Approval>>,
    /// The tiers and grants that a permit used, as it leaves them.
    pub uses: Vec<Use>,
    /// Fields whose values had another type and were read as the right one. Absent when read back.
    pub coerced: Vec<String>,
    /// What became of what the tool's last refusal said. Absent when read back.
    pub self_corrections: Vec<SelfCorrection>,
    /// True when the call is a way out, and is not charged.
    pub terminal: bool,
    /// True when it repeats, under another call_id, a call that was told to wait: it is no further step.
    pub waited: bool,
    /// The failure that a permitted call follows up on.
    pub follow_up: Option<Box<FollowUp>>,
    /// What the model used since the last call; booked whatever the decision was.
    pub usage: Usage,
    /// True when the call was only reported, never asked for.
    pub observed: bool,
    /// The policy that judged, by hash.
    pub policy: Arc<str>,
    /// The arguments in canonical form. Absent when read back, but for open and failed calls.
    pub arguments: Option<Arc<str>>,
    /// What the arguments look like. Absent when read back without them.
    pub shape: Option<Arc<Shape>>,
    /// Why the agent wanted it. Absent when read back.
    pub justification: Option<String>,
}

/// A permitted call was reported on.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// Its place among the tree's events; the tree's version after it.
    pub seq: u64,
    /// When, by the database's time.
    pub at: Timestamp,
    /// Whose call.
    pub session: SessionId,
    pub call_id: CallId,
    /// The place of the permit that this settles.
    pub permit_seq: u64,
    /// What came of it.
    pub status: OutcomeStatus,
    /// What went wrong.
    pub failure: Option<FailureKind>,
    /// The masked error, by which the same error is known again.
    pub error_signature: Option<String>,
    /// What it answered.
    pub digest: Option<ResultDigest>,
    /// The state of what it read, where that was the same before and after; the state that a write left.
    pub witness: Option<Witness>,
    /// True when later calls may depend on the answer, and it is remembered.
    pub kept: bool,
    /// What loop rules read of the result, for a success.
    pub marks: Option<Arc<Marks>>,
    /// True when it brought something new.
    pub news: bool,
    /// True when that was more than another name or number for what the call gave before.
    pub progress: bool,
    /// It did not succeed, and may have taken effect all the same.
    pub effect_open: bool,
    /// The execution received the idempotency key.
    pub key_sent: bool,
    /// Nobody reported: a later attempt was told that what this one would make exists already.
    pub inferred: bool,
    /// Another attempt of the occurrence has succeeded as well.
    pub double_effect: bool,
    /// What was advised.
    pub advice: Option<Advice>,
    /// For a failure: how the tool fared.
    pub circumstances: Option<Circumstances>,
    /// For a follow-up on a failure: it did not fail. Absent when it is none, or nobody can tell.
    pub follow_up_ok: Option<bool>,
    /// True when nobody reported: the lease ran out.
    pub by_lease: bool,
    /// For `running`: until when the lease goes now.
    pub lease_until: Option<Timestamp>,
    /// The revision of the call's ledger row after this; 0 when it has none.
    pub ledger_revision: u64,
    /// Model usage reported with it, and the call's actual cost.
    pub usage: Usage,
    /// How long the call took, in milliseconds, by the caller's watch.
    pub duration_ms: Option<u64>,
    /// Does the answer hold everything there is?
    pub is_complete: Option<bool>,
    /// How many matches there are in all.
    pub total_matches: Option<u64>,
    /// How far a running call has come, in the caller's words.
    pub progress_note: Option<String>,
    /// The whole answer as JSON text or plain text. Absent when read back, or when only its digest was reported.
    pub result: Option<String>,
    /// Size of the whole answer, in bytes.
    pub result_bytes: Option<u64>,
    /// What the stored answer was before it was cut; absent for one that is stored whole.
    pub whole: Option<Whole>,
    /// What the stored answer says, in a few words. Absent when read back.
    pub gist: Option<Gist>,
    /// The error in one line, without what is redacted.
    pub error_line: Option<Arc<str>>,
    /// The raw error, for people. Absent when read back.
    pub error_message: Option<String>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A call was judged.
    Judged(Box<Judged>),
    /// A permitted call was reported on.
    Settled(Box<Settled>),
    /// Somebody did something to a session.
    Controlled(Box<Controlled>),
}

impl Event {
    /// The event's place among its tree's events.
    #[must_use]
    pub fn seq(&self) -> u64 {
        match self {
            Self::Judged(judged) => judged.seq,
            Self::Settled(settled) => settled.seq,
            Self::Controlled(controlled) => controlled.seq,
        }
    }

    /// When it happened.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Judged(judged) => judged.at,
            Self::Settled(settled) => settled.at,
            Self::Controlled(controlled) => controlled.at,
        }
    }
}

/// What one judgement or report changes: accepted whole, or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What happened, in order; at least one event.
    pub events: Vec<Event>,
    /// What it changes in the ledger.
    pub ledger: Vec<LedgerChange>,
    /// What it adds to shared counters.
    pub counters: Vec<CounterAdd>,
}

/// A change on its way to the store, with what it was decided on.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// Whose tree.
    pub tenant: TenantId,
    /// The tree, by its root session.
    pub root: SessionId,
    /// The tree's day of birth, in days since the Unix epoch; its rows' partition.
    pub epoch: i32,
    /// The tree's version that the change was decided on; 0 for a tree that does not exist yet.
    pub expected: u64,
    /// When the tree began.
    pub started_at: Timestamp,
    /// The tree's totals after the change.
    pub totals: Spent,
    /// Calls that are open after the change.
    pub open_calls: u32,
    /// When somebody has to look after those.
    pub due: Option<Timestamp>,
    /// Sessions that the change adds to the tree, outermost first: name, parent, depth.
    pub new_sessions: Vec<(SessionId, Option<SessionId>, u32)>,
    /// The trace of who asked for it, where it is known.
    pub trace: Option<TraceId>,
    pub change: Change,
}

impl From<Controlled> for Change {
    fn from(controlled: Controlled) -> Self {
        Self { events: vec![Event::Controlled(Box::new(controlled))], ledger: Vec::new(), counters: Vec::new() }
    }
}

impl Append {
    /// The tree's shard.
    #[must_use]
    pub fn shard(&self) -> Shard {
        Shard::of(self.tenant, &self.root)
    }

    /// This change and the `next` one of the same tree as one, accepted together or not at all.
    #[must_use]
    pub fn then(mut self, next: Self) -> Self {
        self.totals = next.totals;
        self.open_calls = next.open_calls;
        self.due = next.due;
        self.new_sessions.extend(next.new_sessions);
        self.change.events.extend(next.change.events);
        self.change.ledger.extend(next.change.ledger);
        self.change.counters.extend(next.change.counters);
        self
    }
}

impl Judged {
    /// The steps that it consumes. The store adds up the same from its rows.
    #[must_use]
    pub fn steps(&self) -> u64 {
        u64::from(self.round == 1 && !self.terminal && !self.waited)
    }

    /// The part of a judgement that follows from its proposal alone; the rest says "allowed, without a permit yet".
    #[must_use]
    pub fn of(proposal: &Proposal, seq: u64, at: Timestamp) -> Self {
        let request = &proposal.request;
        Self {
            seq,
            at,
            session: request.session.clone(),
            parent: request.parent.clone(),
            depth: 0,
            run: request.run.clone(),
            run_from: seq,
            resumes: false,
            agent: request.agent.clone(),
            user: request.user.clone(),
            host: request.host.clone(),
            call_id: request.call_id.clone(),
            round: 1,
            batch: seq,
            tool: request.tool.clone(),
            fingerprint: proposal.fingerprint,
            args_digest: proposal.args_digest,
            effect: proposal.effect.clone(),
            witness: proposal.witness,
            decision: Decision::Allow,
            would: Decision::Allow,
            reason: None,
            findings: Arc::default(),
            permit: None,
            approval: None,
            uses: Vec::new(),
            coerced: proposal.coerced.iter().map(|field| field.field.clone()).collect(),
            self_corrections: Vec::new(),
            terminal: proposal.spec.terminal,
            waited: false,
            follow_up: None,
            usage: request.usage,
            observed: false,
            policy: Arc::default(),
            arguments: Some(proposal.stored.clone()),
            shape: Some(Arc::clone(&proposal.shape)),
            justification: request.justification.clone(),
        }
    }
}
