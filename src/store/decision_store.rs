//! The contract between decisions and what stores them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::future::BoxFuture;

use crate::{CountingRound, DueTree, DueTrees, Learn, QueueSlot, SessionTree, StoreError, sealing::Keyring};
use callgate_core::domain::{
    audit::Actor,
    budget::CounterKey,
    control::EditedArguments,
    event::Event,
    fingerprint::LedgerKey,
    halt::{Halt, HaltTarget},
    health::{HealthObservations, HealthRow},
    history::PastCall,
    ids::{CallId, SessionId, TenantId, ToolName},
    inbox::{ApprovalQuery, Question},
    ledger::LedgerRow,
    previous::StoredResult,
    profile::{ProfileCounts, ResidualState},
    time::Timestamp,
    tree::CallTree,
    violation::SelfCorrectionCount,
};

/// An answer of a store, or why there is none.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// What decisions read, and where they are stored: PostgreSQL ([`Store`](crate::Store)), or memory
/// ([`MemoryStore`](crate::MemoryStore)). `tests/store/contract` holds both to what is promised here.
///
/// **Appends** go through [`Self::queue_slot`]. Each is stored whole or not at all, and only if everything that it was
/// decided on still holds; otherwise it is [`Lost`](crate::Lost), by the first of these that does not: the tree's
/// version and beginning, the tree of each session, the ledger's revisions, the rounds of call_ids, the limits of
/// counters. A change that was decided on a lost one is lost with it.
///
/// **Reads** see every append whose commit was told before they began, and no part of one that is not committed; two
/// reads may see two moments. Counters alone may be older. Nothing is seen of another tenant.
///
/// **Errors**: a [`StoreError`] of a read says nothing of what is stored; whatever it was to change is unchanged, or
/// nobody knows. The store in memory gives [`StoreError::Stopped`] alone.
pub trait DecisionStore: fmt::Debug + Send + Sync {
    /// The store's time: that of all replicas.
    fn now(&self) -> Timestamp;

    /// The time that ends leases: a forward step of the store's clock ends none before its time.
    fn now_of_leases(&self) -> Timestamp;

    /// Moves [`Self::now`] ahead, in milliseconds, for this replica: for tests of what takes hours.
    fn skip(&self, ms: u64);

    /// The keys with which tenants' values are encrypted.
    fn keyring(&self) -> &Arc<Keyring>;

    /// Where the store is, for traces.
    fn namespace(&self) -> &str;

    /// Proof that the store answers, and stores what it is given.
    fn ping(&self) -> Answer<'_, ()>;

    /// The tree that a session belongs to, or, when nobody has heard of the session, its parent's; none when nobody has
    /// heard of that one either.
    fn find<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        parent: Option<&'a SessionId>,
    ) -> Answer<'a, Option<SessionTree>>;

    /// A tree as it was last committed: the fold of all its events. None when it has no event yet. With its day of
    /// birth, where that is known, it is read at once.
    fn tree<'a>(&'a self, tenant: TenantId, root: &'a SessionId, epoch: Option<i32>) -> Answer<'a, Option<CallTree>>;

    /// A tree that was read or stored before, as it was last committed: only what happened since is read. None when it
    /// has to be read anew.
    fn catch_up(&self, known: CallTree) -> Answer<'_, Option<CallTree>>;

    /// The version of a tree as it was last committed, and when it began; none when it has no event yet.
    fn head<'a>(&'a self, tenant: TenantId, root: &'a SessionId) -> Answer<'a, Option<(u64, Timestamp)>>;

    /// All events of one call_id, oldest first; empty for one that nobody has heard of.
    fn call<'a>(&'a self, tenant: TenantId, session: &'a SessionId, call_id: &'a CallId) -> Answer<'a, Vec<Event>>;

    /// What the last success of a call gave; none when there was none.
    fn result<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<StoredResult>>;

    /// The canonical arguments of a call, as it was judged last; none for one that nobody has heard of.
    fn arguments<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<String>>;

    /// What a person has approved instead of a call; none where nobody has.
    fn edited<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<EditedArguments>>;

    /// The newest judgements of a session's calls, `most` of them, with what came of each; the oldest first.
    fn past_calls<'a>(&'a self, tenant: TenantId, session: &'a SessionId, most: usize) -> Answer<'a, Vec<PastCall>>;

    /// The ledger's rows of writes that a tree asks for; none where there was no permit yet, or is no key.
    fn ledger_rows<'a>(
        &'a self,
        tenant: TenantId,
        root: &'a SessionId,
        keys: Vec<Option<LedgerKey>>,
    ) -> Answer<'a, Vec<Option<LedgerRow>>>;

    /// Shared counters, each with its limit. One that is far from its limit may be a minute old.
    fn counters(&self, tenant: TenantId, keys: BTreeMap<CounterKey, u64>) -> Answer<'_, BTreeMap<CounterKey, u64>>;

    /// A slot in the writer's queue, which is sent a change while its tree is locked.
    ///
    /// Errors: [`StoreError::Overloaded`] when there is none for 200 ms.
    fn queue_slot(&self) -> Answer<'_, QueueSlot>;

    /// Takes on trees that are due at `now`, the longest due first: no replica is given them again for the next 20 s.
    fn take_due(&self, now: Timestamp) -> Answer<'_, DueTrees>;

    /// Nobody has to look after the tree before `due`; not at all, without one. Does nothing for a tree that has moved:
    /// what moved it has said when it is due.
    fn put_off<'a>(&'a self, tree: &'a DueTree, due: Option<Timestamp>) -> Answer<'a, ()>;

    /// Whose a tree is; none while nobody has worked in it with a credential.
    fn owner<'a>(&'a self, tenant: TenantId, root: &'a SessionId) -> Answer<'a, Option<String>>;

    /// Makes a tree this one's, unless it is somebody's already; gives whose it is.
    fn own<'a>(&'a self, tenant: TenantId, root: &'a SessionId, name: &'a str) -> Answer<'a, String>;

    /// Halts something; gives the halt that holds, an earlier one where there was one.
    fn halt<'a>(&'a self, tenant: TenantId, what: &'a HaltTarget, by: &'a Actor, reason: &'a str) -> Answer<'a, Halt>;

    /// Lets go on what was halted; false when it was not.
    fn resume<'a>(&'a self, tenant: TenantId, what: &'a HaltTarget, by: &'a Actor, reason: &'a str)
    -> Answer<'a, bool>;

    /// Everything that is halted, by tenant.
    fn halts(&self) -> Answer<'_, BTreeMap<TenantId, Vec<Halt>>>;

    /// Approval requests, the newest first. Where none are told of, whoever waits for one is judged again now and then.
    fn questions<'a>(&'a self, _: TenantId, _: &'a ApprovalQuery) -> Answer<'a, Vec<Question>> {
        answered(Vec::new())
    }

    // What replicas tell each other of tools, and learn of retries. Nothing that must hold depends on it but the claim:
    // a store whose replicas tell each other nothing answers like this.

    /// Claims the one call that finds out how a tool fares after its cooldown; false when another has it. A tool that
    /// no replica has shared yet is free. The claim ends at `until`, by which it is known again.
    fn claim_probe<'a>(&'a self, _: TenantId, _: &'a ToolName, _: Timestamp) -> Answer<'a, bool> {
        answered(true)
    }

    /// Gives a claim back that was not used; one that is another's by now stays so.
    fn release_probe<'a>(&'a self, _: TenantId, _: &'a ToolName, _: Timestamp) -> Answer<'a, ()> {
        answered(())
    }

    /// Adds what this replica has seen of tools; gives the rows as they are then. `per_minute` retries are earned back
    /// by time.
    fn add_health<'a>(&'a self, _: &'a [HealthObservations], _per_minute: f64) -> Answer<'a, Vec<HealthRow>> {
        answered(Vec::new())
    }

    /// How the tools fare whose rows changed since.
    fn changed_health(&self, _: Timestamp) -> Answer<'_, Vec<HealthRow>> {
        answered(Vec::new())
    }

    /// Counts waiting trials into the rollups, if no other replica does; `learn` puts them on top of what is stored.
    fn count_trials<'a>(&'a self, _learn: Learn<'a>) -> Answer<'a, CountingRound> {
        answered(CountingRound::Elsewhere)
    }

    /// Moves whenever the rollups change.
    fn profiles_version(&self) -> Answer<'_, u64> {
        answered(0)
    }

    /// What the rollups say now about a tenant's retries.
    fn profiles(&self, _: TenantId) -> Answer<'_, (ProfileCounts, Vec<ResidualState>)> {
        answered((ProfileCounts { as_of: self.now(), cells: Vec::new(), recent: Vec::new() }, Vec::new()))
    }

    /// What became of refusals for arguments.
    fn self_corrections(&self, _: TenantId) -> Answer<'_, Vec<SelfCorrectionCount>> {
        answered(Vec::new())
    }
}

fn answered<'a, T: Send + 'a>(answer: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(Ok(answer)))
}
