//! In-memory world: call trees, ledger and counters that change together, as in the store. Replays, simulations and
//! stories run on it. With a single writer, no decision is stale.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    domain::{
        budget::CounterKey,
        call::{Permit, Proposal},
        control::Command,
        creation::{Creation, CreationKey},
        event::{Change, Event},
        fingerprint::LedgerKey,
        halt::{Halt, Halted},
        health::{Health, PROBE_CALL_MS},
        history::PastCall,
        ids::{SessionId, TenantId, ToolName},
        ledger::LedgerRow,
        rejection::{CommandRejection, EvaluateRejection, RecordRejection},
        report::Report,
        session_state::{Extent, SessionState},
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Judgement, Recorded, Shared, control, evaluate, ledger_key, ledger_key_of, record},
    policy::Policy,
    retry::profiles::Profiles,
};

/// World of one tenant.
#[derive(Debug, Clone)]
pub struct World {
    tenant: TenantId,
    trees: BTreeMap<SessionId, CallTree>,
    roots: BTreeMap<SessionId, SessionId>,
    ledger: BTreeMap<LedgerKey, LedgerRow>,
    counters: BTreeMap<CounterKey, u64>,
    tools: BTreeMap<ToolName, Health>,
    profiles: Arc<Profiles>,
    halts: Vec<Halt>,
    creations: BTreeMap<CreationKey, Creation>,
    /// Past calls of each session, if kept.
    past: Option<BTreeMap<SessionId, Vec<PastCall>>>,
}

/// A verdict, and its batch when it is new.
pub type Judged = (Verdict, Option<u64>);

fn advise(event: &mut Event, (retryable, retry_after_ms): (bool, u64)) {
    let Event::Settled(settled) = event else { return };
    if let Some(advice) = settled.advice.as_mut().filter(|advice| advice.guard.is_none()) {
        (advice.retryable, advice.retry_after_ms) = (retryable, retry_after_ms);
    }
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            trees: BTreeMap::new(),
            roots: BTreeMap::new(),
            ledger: BTreeMap::new(),
            counters: BTreeMap::new(),
            tools: BTreeMap::new(),
            profiles: Arc::default(),
            halts: Vec::new(),
            creations: BTreeMap::new(),
            past: None,
        }
    }

    /// This world, keeping past calls.
    #[must_use]
    pub fn with_past(self) -> Self {
        Self { past: Some(BTreeMap::new()), ..self }
    }

    /// The state of a session; none without a tree.
    #[must_use]
    pub fn state(&self, policy: &Policy, session: &SessionId, extent: Extent, now: Timestamp) -> Option<SessionState> {
        let past = self.past.as_ref().and_then(|past| past.get(session)).map_or(&[][..], Vec::as_slice);
        engine::session_state(policy, self.tree(session)?, session, (&self.counters, past), extent, now)
    }

    /// The tree of a session, if it has one.
    #[must_use]
    pub fn tree(&self, session: &SessionId) -> Option<&CallTree> {
        self.roots.get(session).and_then(|root| self.trees.get(root))
    }

    /// All trees, by root.
    pub fn trees(&self) -> impl Iterator<Item = &CallTree> {
        self.trees.values()
    }

    /// Judges a call, and folds the judgment.
    ///
    /// # Errors
    /// [`EvaluateRejection`]: nothing was decided.
    pub fn evaluate(
        &mut self,
        policy: &Policy,
        proposal: &Proposal,
        batch: Option<u64>,
        now: Timestamp,
    ) -> Result<Judged, EvaluateRejection> {
        let root = self.settle_in(proposal, now);
        match self.judge(policy, &root, proposal, batch, now)? {
            Judgement::Replay(verdict) => Ok((verdict, None)),
            Judgement::New(verdict, change) => {
                let judged = change.events.iter().find_map(|event| match event {
                    Event::Judged(judged) => Some(judged),
                    Event::Settled(_) | Event::Controlled(_) => None,
                });
                let batch = judged.map(|judged| judged.batch);
                for of in judged.into_iter().flat_map(|judged| &judged.self_corrections) {
                    Arc::make_mut(&mut self.profiles).self_corrections.learn(&proposal.request.tool, of);
                }
                self.commit(&root, *change);
                if let Some(permit) = &verdict.permit {
                    self.called(policy, &proposal.request.tool, permit);
                }
                Ok((verdict, batch))
            }
        }
    }

    /// Judges a call without folding the judgment.
    ///
    /// # Errors
    /// [`EvaluateRejection`]: nothing could be decided.
    pub fn preview(
        &mut self,
        policy: &Policy,
        proposal: &Proposal,
        batch: Option<u64>,
        now: Timestamp,
    ) -> Result<Verdict, EvaluateRejection> {
        let root = self.settle_in(proposal, now);
        match self.judge(policy, &root, proposal, batch, now)? {
            Judgement::Replay(verdict) | Judgement::New(verdict, _) => Ok(verdict),
        }
    }

    /// Folds a report.
    ///
    /// # Errors
    /// [`RecordRejection`]: nothing was folded.
    pub fn record(&mut self, policy: &Policy, report: &Report, now: Timestamp) -> Result<Recorded, RecordRejection> {
        self.record_as(policy, report, None, now)
    }

    /// [`Self::record`] with a recorded retry estimate: worthwhile or not, and the wait, in milliseconds. Limits apply
    /// anew.
    ///
    /// # Errors
    /// [`RecordRejection`]: nothing was folded.
    pub fn record_as(
        &mut self,
        policy: &Policy,
        report: &Report,
        estimated: Option<(bool, u64)>,
        now: Timestamp,
    ) -> Result<Recorded, RecordRejection> {
        let root = match (self.roots.get(&report.session), &report.observed) {
            (Some(root), _) => root.clone(),
            (None, Some(proposal)) => self.settle_in(proposal, now),
            (None, None) => return Err(RecordRejection::UnknownCall),
        };
        let tree = self.trees.get(&root).ok_or(RecordRejection::UnknownCall)?;
        let call = tree.sessions.get(&report.session).and_then(|session| session.reported(&report.call_id));
        let observed = report.observed.as_deref();
        let key = match call {
            Some(call) => ledger_key_of(&root, call),
            None => observed.and_then(|proposal| ledger_key(&root, proposal)),
        };
        let tool = call.map(|call| &call.tool).or(observed.map(|proposal| &proposal.request.tool));
        let mut recorded = record(policy, tree, &self.shared(key, tool), report, now)?;
        if let Some(mut change) = recorded.change.take() {
            if let Some(estimated) = estimated {
                change.events.iter_mut().for_each(|event| advise(event, estimated));
            }
            self.commit(&root, *change);
        }
        if let Some((tool, observation)) = &recorded.observation {
            self.tools.entry(tool.clone()).or_default().reported(observation, &policy.retry.allowance);
        }
        self.creations.extend(recorded.creation.clone());
        if let Some(trial) = &recorded.trial {
            Arc::make_mut(&mut self.profiles).learn(trial);
        }
        Ok(recorded)
    }

    /// Swaps the retry profiles, so that several worlds can learn as one.
    pub fn swap_profiles(&mut self, profiles: &mut Arc<Profiles>) {
        std::mem::swap(&mut self.profiles, profiles);
    }

    /// Executes a command on a session. Only its tree records it.
    ///
    /// # Errors
    /// [`CommandRejection`]: nothing was done.
    pub fn control(&mut self, policy: &Policy, command: &Command, now: Timestamp) -> Result<(), CommandRejection> {
        let root = self.roots.entry(command.session.clone()).or_insert_with(|| command.session.clone()).clone();
        let tenant = self.tenant;
        let tree = self.trees.entry(root.clone()).or_insert_with(|| CallTree::new(tenant, root.clone(), now));
        let controlled = control(policy, tree, command, now)?;
        self.commit(&root, controlled.into());
        Ok(())
    }

    /// Sets or lifts a halt.
    pub fn halt(&mut self, what: Halted, halt: Option<Halt>) {
        self.halts.retain(|known| known.what != what);
        self.halts.extend(halt);
    }

    /// Records a permitted call: the first one after an open circuit is the probe.
    fn called(&mut self, policy: &Policy, tool: &ToolName, permit: &Permit) {
        let health = self.tools.entry(tool.clone()).or_default();
        health.called(&policy.retry.allowance, permit.at);
        if health.is_to_be_probed(permit.at) {
            health.probed(Some(permit.lease_until.min(permit.at.plus_ms(PROBE_CALL_MS))));
        }
    }

    fn judge(
        &self,
        policy: &Policy,
        root: &SessionId,
        proposal: &Proposal,
        batch: Option<u64>,
        now: Timestamp,
    ) -> Result<Judgement, EvaluateRejection> {
        let Some(tree) = self.trees.get(root) else { unreachable!("its session has settled in") };
        let shared = Shared {
            creation: self.creation(proposal),
            ..self.shared(ledger_key(root, proposal), Some(&proposal.request.tool))
        };
        evaluate(policy, tree, &shared, proposal, batch, now)
    }

    fn creation(&self, proposal: &Proposal) -> Option<Creation> {
        let agent = proposal.request.agent.clone()?;
        self.creations.get(&(agent, proposal.fingerprint)).cloned()
    }

    fn shared(&self, key: Option<LedgerKey>, tool: Option<&ToolName>) -> Shared {
        Shared {
            counters: self.counters.clone(),
            ledger: key.and_then(|key| self.ledger.get(&key).cloned()),
            health: tool.and_then(|tool| self.tools.get(tool).cloned()).unwrap_or_default(),
            profiles: Arc::clone(&self.profiles),
            halts: self.halts.as_slice().into(),
            creation: None,
            step_ms: 0,
        }
    }

    /// The root of the session, created if necessary.
    fn settle_in(&mut self, proposal: &Proposal, now: Timestamp) -> SessionId {
        let request = &proposal.request;
        let root = self.roots.get(&request.session).cloned().unwrap_or_else(|| {
            let parent = request.parent.as_ref();
            let of_parent = parent.map(|parent| self.roots.get(parent).unwrap_or(parent).clone());
            of_parent.unwrap_or_else(|| request.session.clone())
        });
        self.roots.insert(request.session.clone(), root.clone());
        let tenant = self.tenant;
        self.trees.entry(root.clone()).or_insert_with(|| CallTree::new(tenant, root.clone(), now));
        root
    }

    fn commit(&mut self, root: &SessionId, change: Change) {
        for change in &change.ledger {
            let revision = self.ledger.get(&change.key).map_or(0, |row| row.revision);
            debug_assert_eq!(revision, change.expected, "a ledger change was decided on another revision");
            self.ledger.insert(change.key, change.row.clone());
        }
        for add in &change.counters {
            let used = self.counters.entry(add.key.clone()).or_default();
            *used = used.saturating_add_signed(add.amount);
            debug_assert!(
                add.amount < 0 || add.limit.is_none_or(|limit| *used <= limit),
                "a reservation passed its limit"
            );
        }
        if let Some(past) = self.past.as_mut() {
            change.events.iter().for_each(|event| remember(past, event));
        }
        if let Some(tree) = self.trees.get_mut(root) {
            let _ = engine::advance(tree, change);
        }
    }
}

fn remember(past: &mut BTreeMap<SessionId, Vec<PastCall>>, event: &Event) {
    match event {
        Event::Judged(judged) => past.entry(judged.session.clone()).or_default().push(PastCall::of(judged)),
        Event::Settled(settled) => {
            let calls = past.get_mut(&settled.session).into_iter().flatten();
            calls.filter(|call| call.seq == settled.permit_seq).for_each(|call| call.settle(settled));
        }
        Event::Controlled(_) => {}
    }
}
