//! Store in memory: one event store a tenant, shared by all replicas of a process, lost at its end. It has no audit
//! log, no encryption and no list of approval requests, and its replicas learn separately.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tracing::Span;

use crate::{
    CommittedChange, ConflictCause, DueTree, DueTrees, QueueSlot, SessionTree,
    decision_store::{Answer, DecisionStore},
    postgres::{QUEUE_MAX, QueuedChange, TAKEN_MAX, TAKEN_MS},
    sealing::Keyring,
};
use callgate_core::{
    domain::{
        audit::Actor,
        budget::CounterKey,
        bulkhead::{BulkheadClaim, BulkheadTurn, Bulkheads},
        control::{Control, EditedArguments},
        event::{Append, Event},
        fingerprint::LedgerKey,
        halt::{HALTS_MAX, Halt, HaltTarget},
        history::PastCall,
        ids::{CallId, SessionId, TenantId},
        ledger::LedgerRow,
        previous::StoredResult,
        time::Timestamp,
        tree::CallTree,
    },
    offline::event_store::{Conflict, EventStore},
};
use callgate_net::clock::Clock;

impl From<Conflict> for ConflictCause {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::Version => Self::Version,
            Conflict::Session => Self::Session,
            Conflict::Ledger => Self::Ledger,
            Conflict::CallId => Self::CallId,
            Conflict::Counter => Self::Counter,
        }
    }
}

/// A replica's handle on a store in memory, with a writer of its own.
#[derive(Debug)]
pub struct MemoryStore {
    stored: Arc<Mutex<MemoryState>>,
    queue: mpsc::Sender<QueuedChange>,
    keyring: Arc<Keyring>,
    clock: Clock,
    skipped_ms: AtomicU64,
}

#[derive(Debug, Default)]
struct MemoryState {
    tenants: BTreeMap<TenantId, EventStore>,
    owners: BTreeMap<(TenantId, SessionId), String>,
    /// Oldest first.
    halts: BTreeMap<TenantId, Vec<Halt>>,
    bulkheads: BTreeMap<TenantId, Bulkheads>,
}

impl MemoryStore {
    /// An empty store on the time of `clock`. Requires a tokio runtime.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::of(Arc::default(), clock)
    }

    /// Another replica on the same store.
    #[must_use]
    pub fn replica(&self) -> Self {
        Self::of(Arc::clone(&self.stored), self.clock.clone())
    }

    fn of(stored: Arc<Mutex<MemoryState>>, clock: Clock) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(write(Arc::clone(&stored), jobs));
        Self { stored, queue, keyring: Arc::default(), clock, skipped_ms: AtomicU64::new(0) }
    }

    fn read<'a, T: Send + 'a>(&self, read: impl FnOnce(&mut MemoryState) -> T) -> Answer<'a, T> {
        let read = Ok(read(&mut self.stored.lock()));
        Box::pin(async { read })
    }

    fn of_tenant<'a, T: Default + Send + 'a>(
        &self,
        tenant: TenantId,
        read: impl FnOnce(&mut EventStore) -> T,
    ) -> Answer<'a, T> {
        self.read(|stored| stored.tenants.get_mut(&tenant).map(read).unwrap_or_default())
    }
}

/// Writer task: applies changes in order until every sender is dropped.
async fn write(stored: Arc<Mutex<MemoryState>>, mut queue: mpsc::Receiver<QueuedChange>) {
    while let Some(job) = queue.recv().await {
        let written = match job.slot.is_invalidated() {
            true => Err(ConflictCause::Version),
            false => stored.lock().append(job.append.clone()).map_err(ConflictCause::from),
        };
        job.answer(written.map(|()| CommittedChange { batch: Span::none() }));
    }
}

impl MemoryState {
    fn append(&mut self, append: Append) -> Result<(), Conflict> {
        let tenant = append.tenant;
        self.tenants.entry(tenant).or_insert_with(|| EventStore::new(tenant).with_log()).append(append)
    }

    fn take_due(&mut self, now: Timestamp) -> DueTrees {
        let trees = self.tenants.values().flat_map(EventStore::trees);
        let due = trees.filter_map(|tree| Some((tree.due.filter(|due| *due <= now)?, tree)));
        let mut due: Vec<(Timestamp, DueTree, bool)> = due
            .map(|(at, tree)| {
                let due = DueTree { tenant: tree.tenant, root: tree.root.clone(), version: tree.version };
                (at, due, tree.open_calls > 0)
            })
            .collect();
        due.sort_by_key(|(at, ..)| *at);
        due.truncate(TAKEN_MAX);
        let is_full = due.len() >= TAKEN_MAX;
        for (_, tree, is_open) in &due {
            self.put_off(tree, is_open.then(|| now.plus_ms(TAKEN_MS)));
        }
        DueTrees { trees: due.into_iter().filter_map(|(_, tree, is_open)| is_open.then_some(tree)).collect(), is_full }
    }

    fn put_off(&mut self, tree: &DueTree, due: Option<Timestamp>) {
        let events = self.tenants.get_mut(&tree.tenant);
        let events = events.filter(|events| events.tree(&tree.root).is_some_and(|known| known.version == tree.version));
        events.into_iter().for_each(|events| events.put_off(&tree.root, due));
    }

    fn halt(&mut self, tenant: TenantId, halt: Halt) -> Halt {
        let halts = self.halts.entry(tenant).or_default();
        if let Some(known) = halts.iter().find(|known| known.what == halt.what) {
            return known.clone();
        }
        halts.push(halt.clone());
        halt
    }

    fn resume(&mut self, tenant: TenantId, what: &HaltTarget) -> bool {
        let halts = self.halts.entry(tenant).or_default();
        let before = halts.len();
        halts.retain(|halt| halt.what != *what);
        halts.len() < before
    }

    fn halts(&self) -> BTreeMap<TenantId, Vec<Halt>> {
        let newest = |halts: &Vec<Halt>| {
            let mut halts = halts[halts.len().saturating_sub(HALTS_MAX)..].to_vec();
            halts.sort_by(|one, other| {
                (one.what.kind_name(), one.what.name()).cmp(&(other.what.kind_name(), other.what.name()))
            });
            halts
        };
        let some = self.halts.iter().filter(|(_, halts)| !halts.is_empty());
        some.map(|(tenant, halts)| (*tenant, newest(halts))).collect()
    }
}

fn find(events: &EventStore, session: &SessionId, parent: Option<&SessionId>) -> Option<SessionTree> {
    let of_parent = || parent.and_then(|parent| events.root(parent)).map(|root| (root, true));
    let (root, by_parent) = events.root(session).map(|root| (root, false)).or_else(of_parent)?;
    Some(SessionTree { root: root.clone(), by_parent, epoch: events.tree(root).map(|tree| tree.epoch) })
}

/// The stored form of a tree, without the ledger revisions that only a decision uses.
fn to_stored_form(tree: &CallTree) -> CallTree {
    let mut tree = tree.clone();
    let _ = tree.catch_up(&[]);
    tree
}

fn catch_up(events: &EventStore, mut known: CallTree) -> Option<CallTree> {
    let stored = events.tree(&known.root)?;
    let is_it = (stored.epoch, stored.started_at) == (known.epoch, known.started_at);
    let since = events.events(&known.root).get(usize::try_from(known.version).ok()?..)?;
    let is_whole = is_it && known.catch_up(since);
    known.due = stored.due;
    let is_stored = known.spent == stored.spent && known.open_calls == stored.open_calls;
    (is_whole && is_stored).then_some(known)
}

fn find_approved_edit(events: &EventStore, session: &SessionId, call: &CallId) -> Option<EditedArguments> {
    let of_tree = events.root(session).map_or(&[][..], |root| events.events(root));
    of_tree.iter().rev().find_map(|event| match event {
        Event::Controlled(event) if event.session == *session => match &event.control {
            Control::Answered { call_id, edit: Some(edit), .. } if call_id == call => Some(edit.edited.clone()),
            _ => None,
        },
        _ => None,
    })
}

impl DecisionStore for MemoryStore {
    fn now(&self) -> Timestamp {
        self.clock.now().plus_ms(self.skipped_ms.load(Ordering::Relaxed))
    }

    fn now_of_leases(&self) -> Timestamp {
        self.now()
    }

    fn skip(&self, ms: u64) {
        self.skipped_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    fn namespace(&self) -> &str {
        "memory"
    }

    fn ping(&self) -> Answer<'_, ()> {
        self.read(|_| ())
    }

    fn find<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        parent: Option<&'a SessionId>,
    ) -> Answer<'a, Option<SessionTree>> {
        self.of_tenant(tenant, |events| find(events, session, parent))
    }

    fn tree<'a>(&'a self, tenant: TenantId, root: &'a SessionId, _: Option<i32>) -> Answer<'a, Option<CallTree>> {
        self.of_tenant(tenant, |events| events.tree(root).map(to_stored_form))
    }

    fn catch_up(&self, known: CallTree) -> Answer<'_, Option<CallTree>> {
        self.of_tenant(known.tenant, |events| catch_up(events, known))
    }

    fn head<'a>(&'a self, tenant: TenantId, root: &'a SessionId) -> Answer<'a, Option<(u64, Timestamp)>> {
        self.of_tenant(tenant, |events| events.tree(root).map(|tree| (tree.version, tree.started_at)))
    }

    fn call<'a>(&'a self, tenant: TenantId, session: &'a SessionId, call_id: &'a CallId) -> Answer<'a, Vec<Event>> {
        self.of_tenant(tenant, |events| events.call(session, call_id).cloned().collect())
    }

    fn result<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<StoredResult>> {
        let gone = || StoredResult { is_gone: true, ..StoredResult::default() };
        self.read(|stored| {
            let events = stored.tenants.get(&tenant);
            Some(events.map_or_else(gone, |events| events.result(session, call_id)))
        })
    }

    fn arguments<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<String>> {
        self.of_tenant(tenant, |events| {
            let judged = events.call(session, call_id).rev().find_map(|event| match event {
                Event::Judged(judged) => Some(judged),
                Event::Settled(_) | Event::Controlled(_) => None,
            });
            judged.and_then(|judged| judged.arguments.as_deref().map(str::to_owned))
        })
    }

    fn find_edit<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<EditedArguments>> {
        self.of_tenant(tenant, |events| find_approved_edit(events, session, call_id))
    }

    fn past_calls<'a>(&'a self, tenant: TenantId, session: &'a SessionId, most: usize) -> Answer<'a, Vec<PastCall>> {
        self.of_tenant(tenant, |events| events.past_calls(session, most))
    }

    fn ledger_rows<'a>(
        &'a self,
        tenant: TenantId,
        _: &'a SessionId,
        keys: Vec<Option<LedgerKey>>,
    ) -> Answer<'a, Vec<Option<LedgerRow>>> {
        self.read(|stored| {
            let ledger = stored.tenants.get(&tenant).map(EventStore::ledger);
            keys.into_iter().map(|key| ledger?.get(&key?).cloned()).collect()
        })
    }

    fn counters(&self, tenant: TenantId, keys: BTreeMap<CounterKey, u64>) -> Answer<'_, BTreeMap<CounterKey, u64>> {
        self.read(|stored| {
            let counters = stored.tenants.get(&tenant).map(EventStore::counters);
            let used = |key: &CounterKey| counters.and_then(|counters| counters.get(key)).copied().unwrap_or(0);
            keys.into_keys().map(|key| (key.clone(), used(&key))).collect()
        })
    }

    fn queue_slot(&self) -> Answer<'_, QueueSlot> {
        Box::pin(QueueSlot::reserve(&self.queue, &self.keyring))
    }

    fn take_due(&self, now: Timestamp) -> Answer<'_, DueTrees> {
        self.read(|stored| stored.take_due(now))
    }

    fn put_off<'a>(&'a self, tree: &'a DueTree, due: Option<Timestamp>) -> Answer<'a, ()> {
        self.read(|stored| stored.put_off(tree, due))
    }

    fn owner<'a>(&'a self, tenant: TenantId, root: &'a SessionId) -> Answer<'a, Option<String>> {
        self.read(|stored| stored.owners.get(&(tenant, root.clone())).cloned())
    }

    fn claim_owner<'a>(&'a self, tenant: TenantId, root: &'a SessionId, name: &'a str) -> Answer<'a, String> {
        self.read(|stored| stored.owners.entry((tenant, root.clone())).or_insert_with(|| name.to_owned()).clone())
    }

    fn halt<'a>(&'a self, tenant: TenantId, what: &'a HaltTarget, by: &'a Actor, reason: &'a str) -> Answer<'a, Halt> {
        let (what, by, reason) = (what.clone(), by.name.clone(), reason.to_owned());
        let halt = Halt { what, by, reason, at: self.now() };
        self.read(|stored| stored.halt(tenant, halt))
    }

    fn resume<'a>(&'a self, tenant: TenantId, what: &'a HaltTarget, _: &'a Actor, _: &'a str) -> Answer<'a, bool> {
        self.read(|stored| stored.resume(tenant, what))
    }

    fn halts(&self) -> Answer<'_, BTreeMap<TenantId, Vec<Halt>>> {
        self.read(|stored| stored.halts())
    }

    fn claim_bulkhead<'a>(&'a self, tenant: TenantId, claim: &'a BulkheadClaim) -> Answer<'a, BulkheadTurn> {
        let now = self.now();
        self.read(|stored| stored.bulkheads.entry(tenant).or_default().claim(claim, now))
    }

    fn release_bulkheads<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, ()> {
        self.read(|stored| stored.bulkheads.entry(tenant).or_default().release(session, call_id))
    }

    fn extend_bulkheads<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
        until: Timestamp,
    ) -> Answer<'a, ()> {
        self.read(|stored| stored.bulkheads.entry(tenant).or_default().extend(session, call_id, until))
    }
}
