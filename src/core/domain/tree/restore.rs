//! Restore of a cold tree from its last events and stored totals.

use super::{CallTree, ChangedResource, RetainedSuccess, Session, controls::kept_json};
use crate::domain::{
    budget::BudgetSpend,
    control::ControlEvent,
    event::Event,
    fingerprint::{Fingerprint, ResultDigest},
    grant::GrantUse,
    ids::{SessionId, ToolName},
    sorted::SortedMap,
    time::Timestamp,
};

/// Totals of a run, summed over its rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunTotals {
    /// Start.
    pub started_at: Timestamp,
    /// Idle time, in milliseconds.
    pub idle_ms: u64,
    /// Spending.
    pub spent: BudgetSpend,
    /// Permitted calls by tool.
    pub by_tool: SortedMap<ToolName, u64>,
}

/// A kept answer as text: `seq`, session, tool, arguments and result.
pub type KeptText = (u64, SessionId, ToolName, Option<String>, Option<String>);

/// Totals of a tree's rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals {
    /// `seq` of the last event.
    pub version: u64,
    /// Time of the last event.
    pub last_at: Timestamp,
    /// Spending of the tree.
    pub spent: BudgetSpend,
    /// Permitted calls by tool.
    pub by_tool: SortedMap<ToolName, u64>,
    /// Calls without an outcome.
    pub open_calls: u32,
    /// Time of the next sweep.
    pub due: Option<Timestamp>,
    /// Every session with its parent, its depth and its current run.
    pub sessions: Vec<(SessionId, Option<SessionId>, u32, RunTotals)>,
    /// Known results of each session, oldest first.
    pub seen: Vec<(SessionId, Fingerprint, ResultDigest)>,
    /// `seq` of the latest possible change among the omitted events.
    pub forgotten_change: u64,
    /// Control events, oldest first.
    pub controls: Vec<ControlEvent>,
    /// Uses of tiers and grants.
    pub uses: Vec<GrantUse>,
    /// Resources changed by writes, oldest first.
    pub changes: Vec<ChangedResource>,
    /// Kept answers, oldest first.
    pub kept: Vec<KeptText>,
}

impl CallTree {
    /// This (new) tree with the last events and totals.
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
        self.restore_kept_texts(totals.kept);
        self
    }

    /// Folds the last events and all control events, by `seq`.
    fn replay(&mut self, last_events: &[Event], all: &[ControlEvent]) {
        let mut controls = all.iter().peekable();
        for event in last_events {
            while let Some(control) = controls.next_if(|control| control.seq < event.seq()) {
                self.apply_control(control);
            }
            self.apply(event);
        }
        controls.for_each(|control| self.apply_control(control));
        // A call's row holds its request as first made, even after the answer.
        all.iter().for_each(|control| self.close_request(control));
    }

    /// Advances plans by the kept answers, which reach further back than the last events.
    fn restore_kept_texts(&mut self, kept: Vec<KeptText>) {
        for plan in self.sessions.values_mut().filter_map(|session| session.plan.as_mut()) {
            plan.done = 0;
        }
        self.kept.clear();
        for (seq, session, tool, arguments, result) in kept {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.advance_plan(&tool, seq);
            }
            let value = |text: Option<String>| text.as_deref().and_then(kept_json);
            self.kept.push_back(RetainedSuccess {
                seq,
                session,
                tool,
                arguments: value(arguments),
                result: value(result),
            });
        }
    }

    /// Advances this stored tree by the events since; false, and an invalid tree, when one is missing. The ledger
    /// revisions are dropped, because other replicas may have moved them.
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

    /// Restores an evicted call from all its events. Totals stay, because they include it.
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
