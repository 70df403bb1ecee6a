//! One alternative world: a call tree with a ledger and counters of its own, kept as the store keeps them. Pure: it
//! knows the engine, and no file, clock or output.

use std::collections::BTreeMap;

use crate::{
    domain::{
        call::Proposal,
        event::Change,
        fingerprint::{LedgerKey, Reach},
        ids::{DEFAULT_TENANT, SessionId},
        ledger::LedgerRow,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Judgement, Misuse, Recorded, Report, Shared},
    policy::Policy,
};

#[derive(Debug)]
pub(super) struct World {
    tree: CallTree,
    ledger: BTreeMap<LedgerKey, LedgerRow>,
    shared: Shared,
}

impl World {
    pub(super) fn new(root: SessionId, now: Timestamp) -> Self {
        let tree = CallTree::new(DEFAULT_TENANT, root, now);
        Self {
            tree,
            ledger: BTreeMap::new(),
            shared: Shared::default(),
        }
    }

    /// Judges a call, and takes the judgement in.
    pub(super) fn evaluate(&mut self, policy: &Policy, proposal: &Proposal, now: Timestamp) -> Result<Verdict, Misuse> {
        let key = engine::ledger_key(&self.tree.root, proposal);
        self.shared.ledger = key.and_then(|key| self.ledger.get(&key).cloned());
        match engine::evaluate(policy, &self.tree, &self.shared, proposal, None, now)? {
            Judgement::Replay(verdict) => Ok(verdict),
            Judgement::New(verdict, change) => {
                self.commit(*change);
                Ok(verdict)
            }
        }
    }

    /// Takes in what came of a call.
    pub(super) fn record(&mut self, policy: &Policy, report: &Report, now: Timestamp) -> Result<Recorded, Misuse> {
        self.shared.ledger = self.ledger_row(report);
        let mut recorded = engine::record(policy, &self.tree, &self.shared, report, now)?;
        if let Some(change) = recorded.change.take() {
            self.commit(*change);
        }
        Ok(recorded)
    }

    fn ledger_row(&self, report: &Report) -> Option<LedgerRow> {
        let call = self.tree.sessions.get(&report.session)?.call(&report.call_id)?;
        let reach = if call.effect.once {
            Reach::Tenant
        } else {
            Reach::Tree(&self.tree.root)
        };
        self.ledger.get(&LedgerKey::of(reach, &call.fingerprint)).cloned()
    }

    /// Does what the store does: the tree, the ledger and the counters move together. Nobody else moves them here, so
    /// no change can be decided on a stale part.
    fn commit(&mut self, change: Change) {
        for change in &change.ledger {
            let revision = self.ledger.get(&change.key).map_or(0, |row| row.revision);
            debug_assert_eq!(
                revision, change.expected,
                "a ledger change was decided on another revision"
            );
            self.ledger.insert(change.key, change.row.clone());
        }
        for add in &change.counters {
            let used = self.shared.counters.entry(add.key.clone()).or_default();
            *used = used.saturating_add_signed(add.amount);
        }
        let _ = engine::advance(&mut self.tree, change);
    }
}
