//! Event store in memory: the call trees of one tenant with their events, its ledger and its shared counters. An append
//! is stored whole or not at all, and conflicts where one of the database does. Replays, stories and properties run on
//! it directly; the server's store in memory wraps it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    domain::{
        budget::CounterKey,
        event::{Append, Change, Event},
        fingerprint::LedgerKey,
        history::PastCall,
        ids::{CallId, SessionId, TenantId},
        ledger::LedgerRow,
        outcome::OutcomeStatus,
        previous::StoredResult,
        time::Timestamp,
        tree::CallTree,
    },
    engine,
};

/// Conflict of an append; of several, the first of this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// The tree has another version, or began at another time.
    Version,
    /// A session belongs to another tree.
    Session,
    /// A ledger row has another revision.
    Ledger,
    /// The round of a call_id is stored already.
    CallId,
    /// A reservation would pass a shared limit.
    Counter,
}

/// Events of one tenant, with their folds.
#[derive(Debug, Clone, PartialEq)]
pub struct EventStore {
    tenant: TenantId,
    trees: BTreeMap<SessionId, CallTree>,
    roots: BTreeMap<SessionId, SessionId>,
    ledger: BTreeMap<LedgerKey, LedgerRow>,
    counters: BTreeMap<CounterKey, u64>,
    log: Option<EventLog>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct EventLog {
    /// By root; the event with `seq` n is the n-th.
    events: BTreeMap<SessionId, Vec<Event>>,
    rounds: BTreeSet<(SessionId, CallId, u32)>,
}

impl EventStore {
    /// An empty store that keeps the folds, not the events.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        let (trees, roots, ledger, counters) = Default::default();
        Self { tenant, trees, roots, ledger, counters, log: None }
    }

    /// The same for an empty store, keeping its events.
    #[must_use]
    pub fn with_log(self) -> Self {
        Self { log: Some(EventLog::default()), ..self }
    }

    /// The root of a stored session.
    #[must_use]
    pub fn root(&self, session: &SessionId) -> Option<&SessionId> {
        self.roots.get(session)
    }

    /// A stored tree.
    #[must_use]
    pub fn tree(&self, root: &SessionId) -> Option<&CallTree> {
        self.trees.get(root)
    }

    /// All stored trees, by root.
    pub fn trees(&self) -> impl Iterator<Item = &CallTree> {
        self.trees.values()
    }

    /// The ledger's rows.
    #[must_use]
    pub const fn ledger(&self) -> &BTreeMap<LedgerKey, LedgerRow> {
        &self.ledger
    }

    /// The shared counters that something was added to.
    #[must_use]
    pub const fn counters(&self) -> &BTreeMap<CounterKey, u64> {
        &self.counters
    }

    /// The events of a tree in their order; empty where they are not kept.
    #[must_use]
    pub fn events(&self, root: &SessionId) -> &[Event] {
        self.log.as_ref().and_then(|log| log.events.get(root)).map_or(&[], Vec::as_slice)
    }

    /// The events of a session's call, oldest first.
    pub fn call<'a>(
        &'a self,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> impl DoubleEndedIterator<Item = &'a Event> {
        let of_tree = self.root(session).map_or(&[][..], |root| self.events(root));
        of_tree.iter().filter(move |event| match event {
            Event::Judged(judged) => judged.session == *session && judged.call_id == *call_id,
            Event::Settled(settled) => settled.session == *session && settled.call_id == *call_id,
            Event::Controlled(_) => false,
        })
    }

    /// The newest `most` judgments of a session's calls with their outcomes, oldest first.
    #[must_use]
    pub fn past_calls(&self, session: &SessionId, most: usize) -> Vec<PastCall> {
        let mut past: Vec<PastCall> = Vec::new();
        for event in self.root(session).map_or(&[][..], |root| self.events(root)) {
            match event {
                Event::Judged(judged) if judged.session == *session => past.push(PastCall::of(judged)),
                Event::Settled(settled) if settled.session == *session => {
                    past.iter_mut().filter(|call| call.seq == settled.permit_seq).for_each(|call| call.settle(settled));
                }
                Event::Judged(_) | Event::Settled(_) | Event::Controlled(_) => {}
            }
        }
        past.split_off(past.len().saturating_sub(most))
    }

    /// The result of a call's last success.
    #[must_use]
    pub fn result(&self, session: &SessionId, call_id: &CallId) -> StoredResult {
        let success = self.call(session, call_id).rev().find_map(|event| match event {
            Event::Settled(settled) if settled.status == OutcomeStatus::Success => Some(settled),
            Event::Judged(_) | Event::Settled(_) | Event::Controlled(_) => None,
        });
        let Some(success) = success else { return StoredResult { is_gone: true, ..StoredResult::default() } };
        StoredResult {
            is_gone: false,
            is_inferred: success.inferred,
            text: success.result.clone(),
            bytes: success.result_bytes,
            whole: success.whole,
            total_matches: success.total_matches,
            is_complete: success.is_complete,
        }
    }

    /// Stores a change that was decided on a copy of the tree.
    ///
    /// # Errors
    /// [`Conflict`]: nothing was stored.
    pub fn append(&mut self, append: Append) -> Result<(), Conflict> {
        let stored = self.trees.get(&append.root).map(|tree| (tree.version, tree.epoch, tree.started_at));
        if stored.unwrap_or((0, append.epoch, append.started_at)) != (append.expected, append.epoch, append.started_at)
        {
            return Err(Conflict::Version);
        }
        self.check(&append.root, &append.change)?;
        self.recall(&append);
        let new =
            || CallTree { epoch: append.epoch, ..CallTree::new(self.tenant, append.root.clone(), append.started_at) };
        let tree = self.trees.entry(append.root.clone()).or_insert_with(new);
        append.change.events.iter().for_each(|event| tree.apply(event));
        // The replica that decided may have more of the tree in its cache than is stored here.
        (tree.spent, tree.open_calls, tree.due) = (append.totals, append.open_calls, append.due);
        self.keep(append);
        Ok(())
    }

    /// Stores a change that was decided on the stored tree itself, or on a new one that begins `now`.
    ///
    /// # Errors
    /// [`Conflict`]: nothing was stored.
    pub fn advance(&mut self, root: &SessionId, change: Change, now: Timestamp) -> Result<(), Conflict> {
        self.check(root, &change)?;
        let new = || CallTree::new(self.tenant, root.clone(), now);
        let append = engine::advance(self.trees.entry(root.clone()).or_insert_with(new), change);
        self.keep(append);
        Ok(())
    }

    /// Sets when the tree is due.
    pub fn put_off(&mut self, root: &SessionId, due: Option<Timestamp>) {
        self.trees.get_mut(root).into_iter().for_each(|tree| tree.due = due);
    }

    fn check(&self, root: &SessionId, change: &Change) -> Result<(), Conflict> {
        let sessions = change.events.iter().map(|event| match event {
            Event::Judged(judged) => &judged.session,
            Event::Settled(settled) => &settled.session,
            Event::Controlled(controlled) => &controlled.session,
        });
        if sessions.chain([root]).any(|session| self.root(session).is_some_and(|known| known != root)) {
            return Err(Conflict::Session);
        }
        let revision = |key| self.ledger.get(key).map_or(0, |row| row.revision);
        if change.ledger.iter().any(|change| revision(&change.key) != change.expected) {
            return Err(Conflict::Ledger);
        }
        if self.log.as_ref().is_some_and(|log| rounds(change).any(|round| log.rounds.contains(&round))) {
            return Err(Conflict::CallId);
        }
        let mut added: BTreeMap<&CounterKey, u64> = BTreeMap::new();
        for add in &change.counters {
            let used = added.entry(&add.key).or_insert_with(|| self.counters.get(&add.key).copied().unwrap_or(0));
            // A negative addition of the same change does not offset its positive ones.
            *used = used.saturating_add(add.amount.max(0).unsigned_abs());
            if add.limit.is_some_and(|limit| *used > limit) {
                return Err(Conflict::Counter);
            }
        }
        Ok(())
    }

    /// Restores the evicted calls of an append to the tree, as its decision did.
    fn recall(&mut self, append: &Append) {
        for event in &append.change.events {
            let (session, call_id) = match event {
                Event::Judged(judged) => (&judged.session, &judged.call_id),
                Event::Settled(settled) => (&settled.session, &settled.call_id),
                Event::Controlled(_) => continue,
            };
            let rounds = |round| (session.clone(), call_id.clone(), round);
            let is_stored = |log: &EventLog| log.rounds.range(rounds(0)..=rounds(u32::MAX)).next().is_some();
            let known = self.trees.get(&append.root).and_then(|tree| tree.sessions.get(session));
            if known.is_some_and(|known| known.call(call_id).is_none()) && self.log.as_ref().is_some_and(is_stored) {
                let events: Vec<Event> = self.call(session, call_id).cloned().collect();
                self.trees.get_mut(&append.root).into_iter().for_each(|tree| tree.recall(session, &events));
            }
        }
    }

    fn keep(&mut self, append: Append) {
        for (session, _, _) in append.new_sessions {
            self.roots.insert(session, append.root.clone());
        }
        for add in &append.change.counters {
            let used = self.counters.entry(add.key.clone()).or_default();
            *used = used.saturating_add_signed(add.amount);
        }
        if let Some(log) = &mut self.log {
            log.rounds.extend(rounds(&append.change));
            log.events.entry(append.root).or_default().extend(append.change.events);
        }
        self.ledger.extend(append.change.ledger.into_iter().map(|change| (change.key, change.row)));
    }
}

fn rounds(change: &Change) -> impl Iterator<Item = (SessionId, CallId, u32)> {
    change.events.iter().filter_map(|event| match event {
        Event::Judged(judged) => Some((judged.session.clone(), judged.call_id.clone(), judged.round)),
        Event::Settled(_) | Event::Controlled(_) => None,
    })
}
