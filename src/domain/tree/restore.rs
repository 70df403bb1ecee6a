//! A cold tree: the fold of its last events, with the sums that those events alone cannot give.

use std::collections::BTreeMap;

use super::{CallTree, Session};
use crate::domain::{
    budget::Spent,
    event::Event,
    fingerprint::{Fingerprint, ResultDigest},
    ids::{SessionId, ToolName},
    time::Timestamp,
};

/// What a run has spent, summed over its rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunTotals {
    /// When it began.
    pub started_at: Timestamp,
    /// What it has spent.
    pub spent: Spent,
    /// Permitted calls by tool.
    pub by_tool: BTreeMap<ToolName, u64>,
}

/// What a tree's rows add up to.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals {
    /// The place of the last event.
    pub version: u64,
    /// When the last event happened.
    pub last_at: Timestamp,
    /// What the tree has spent.
    pub spent: Spent,
    /// Permitted calls by tool.
    pub by_tool: BTreeMap<ToolName, u64>,
    /// Calls that are owed an outcome.
    pub open_calls: u32,
    /// Every session: who started it, how deep, and its current run.
    pub sessions: Vec<(SessionId, Option<SessionId>, u32, RunTotals)>,
    /// What each session has seen, oldest first.
    pub seen: Vec<(SessionId, Fingerprint, ResultDigest)>,
    /// The latest event, among those not given, that may have changed the world.
    pub forgotten_change: u64,
}

impl CallTree {
    /// This (new) tree, as its last events and its totals leave it.
    #[must_use]
    pub fn restore(mut self, last_events: &[Event], totals: Totals) -> Self {
        for (id, parent, depth, _) in &totals.sessions {
            let session = Session { parent: parent.clone(), depth: *depth, ..Session::default() };
            self.sessions.insert(id.clone(), session);
        }
        for (id, fingerprint, digest) in &totals.seen {
            if let Some(session) = self.sessions.get_mut(id) {
                session.remember(fingerprint, digest);
            }
        }
        last_events.iter().for_each(|event| self.apply(event));
        for (id, _, _, run) in totals.sessions {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.run.started_at = run.started_at;
                session.run.spent = run.spent;
                session.run.by_tool = run.by_tool;
            }
        }
        self.version = totals.version;
        self.last_at = totals.last_at;
        self.spent = totals.spent;
        self.by_tool = totals.by_tool;
        self.open_calls = totals.open_calls;
        self.forgotten_change = self.forgotten_change.max(totals.forgotten_change);
        self
    }

    /// Remembers a call again that was forgotten, from all its events. It changes no total: they hold it already.
    pub fn recall(&mut self, session: &SessionId, events: &[Event]) {
        let mut aside = Self::new(self.tenant, self.root.clone(), self.started_at);
        events.iter().for_each(|event| aside.apply(event));
        let calls = aside.sessions.remove(session).map(|aside| aside.calls).unwrap_or_default();
        let Some(session) = self.sessions.get_mut(session) else {
            return;
        };
        for call in calls.into_iter().rev() {
            if !session.calls.iter().any(|known| known.call_id == call.call_id && known.seq == call.seq) {
                session.calls.push_front(call);
            }
        }
    }
}
