//! A cold tree: the fold of its last events, with the sums that those events alone cannot give.

use super::{CallTree, Changed, Kept, Session, controls::kept_json};
use crate::domain::{
    budget::Spent,
    control::Controlled,
    event::Event,
    fingerprint::{Fingerprint, ResultDigest},
    grant::Use,
    ids::{SessionId, ToolName},
    sorted::Sorted,
    time::Timestamp,
};

/// What a run has spent, summed over its rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunTotals {
    /// When it began.
    pub started_at: Timestamp,
    /// How long nobody worked in it, in milliseconds.
    pub idle_ms: u64,
    /// What it has spent.
    pub spent: Spent,
    /// Permitted calls by tool.
    pub by_tool: Sorted<ToolName, u64>,
}

/// An answer that later calls may depend on, as text: its place, session, tool, arguments and result.
pub type KeptText = (u64, SessionId, ToolName, Option<String>, Option<String>);

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
    pub by_tool: Sorted<ToolName, u64>,
    /// Calls that are owed an outcome.
    pub open_calls: u32,
    /// When somebody has to look after them.
    pub due: Option<Timestamp>,
    /// Every session: who started it, how deep, and its current run.
    pub sessions: Vec<(SessionId, Option<SessionId>, u32, RunTotals)>,
    /// What each session has seen, oldest first.
    pub seen: Vec<(SessionId, Fingerprint, ResultDigest)>,
    /// The latest event, among those not given, that may have changed the world.
    pub forgotten_change: u64,
    /// What happened to its sessions from outside their calls, oldest first.
    pub controls: Vec<Controlled>,
    /// How far tiers and grants have been used.
    pub uses: Vec<Use>,
    /// Things that its writes have changed, oldest first.
    pub changes: Vec<Changed>,
    /// Answers that later calls may depend on, oldest first.
    pub kept: Vec<KeptText>,
}

impl CallTree {
    /// This (new) tree, as its last events and its totals leave it.
    #[must_use]
    pub fn restore(mut self, last_events: &[Event], totals: Totals) -> Self {
        for (id, parent, depth, _) in &totals.sessions {
            let session = Session { parent: parent.clone(), depth: *depth, ..Session::default() };
            self.sessions.insert(id.clone(), Box::new(session));
        }
        for (id, fingerprint, digest) in &totals.seen {
            if let Some(session) = self.sessions.get_mut(id) {
                session.remember(fingerprint, digest);
            }
        }
        self.replay(last_events, &totals.controls);
        for (id, _, _, run) in totals.sessions {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.run.started_at = run.started_at;
                session.run.idle_ms = run.idle_ms;
                session.run.spent = run.spent;
                session.run.by_tool = run.by_tool;
            }
        }
        self.version = totals.version;
        self.last_at = totals.last_at;
        self.spent = totals.spent;
        self.by_tool = totals.by_tool;
        self.open_calls = totals.open_calls;
        self.due = totals.due;
        self.forgotten_change = self.forgotten_change.max(totals.forgotten_change);
        self.uses = totals.uses.into_iter().map(|used| (used.key.clone(), used)).collect();
        self.changes = totals.changes.into();
        self.remember_kept(totals.kept);
        self
    }

    /// Folds the last events and all controls in, by their place.
    fn replay(&mut self, last_events: &[Event], all: &[Controlled]) {
        let mut controls = all.iter().peekable();
        for event in last_events {
            while let Some(control) = controls.next_if(|control| control.seq < event.seq()) {
                self.controlled(control);
            }
            self.apply(event);
        }
        controls.for_each(|control| self.controlled(control));
        // A row of a call tells its question as it was asked, also where that had been answered by then.
        all.iter().for_each(|control| self.closed(control));
    }

    /// Plans are advanced by what is kept, which reaches further back than the last events.
    fn remember_kept(&mut self, kept: Vec<KeptText>) {
        for plan in self.sessions.values_mut().filter_map(|session| session.plan.as_mut()) {
            plan.done = 0;
        }
        self.kept.clear();
        for (seq, session, tool, arguments, result) in kept {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.advance_plan(&tool, seq);
            }
            let value = |text: Option<String>| text.as_deref().and_then(kept_json);
            self.kept.push_back(Kept { seq, session, tool, arguments: value(arguments), result: value(result) });
        }
    }

    /// Makes this tree, as it was once stored, what it is after everything that was stored since; false, and a tree
    /// that is nothing of the kind, when one of the events is missing. What it knew of the ledger's revisions goes:
    /// others may have moved them.
    #[must_use]
    pub fn catch_up(&mut self, events: &[Event]) -> bool {
        for event in events {
            if event.seq() != self.version + 1 {
                return false;
            }
            self.apply(event);
        }
        let calls = self.sessions.values_mut().flat_map(|session| &mut session.calls);
        calls.filter_map(|call| call.permit.as_mut()).for_each(|permit| permit.ledger_revision = 0);
        true
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
