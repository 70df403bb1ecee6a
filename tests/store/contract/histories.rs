//! Random histories of two replicas, each of which decides on what it read last: step by step both stores accept and
//! refuse the same, and in the end they hold the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use callgate_core::{
    domain::{
        budget::{BudgetLimits, Budgets, CounterKey, Dimension},
        call::{Proposal, Request},
        event::Change,
        fingerprint::LedgerKey,
        ids::{CallId, DEFAULT_TENANT, SessionId},
        ledger::LedgerRow,
        outcome::OutcomeStatus,
        time::Timestamp,
        tree::CallTree,
    },
    engine::{self, Evaluation, SharedState},
    policy::Policy,
};
use callgate_store::{ConflictCause, DecisionStore, Slot, Slots};
use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, RngSeed, TestRunner},
};

use super::{Replicas, changes::now, in_memory, on_postgres};
use crate::common::{
    gates::{agent, ask, policy, report, session},
    postgres::Postgres,
};

/// Steps of a history, and histories of a usual run.
const STEPS: usize = 60;
const HISTORIES: u32 = 24;
/// Two roots, and sessions below them.
const NAMES: [&str; 5] = ["root", "other", "child", "sibling", "grandchild"];
/// Histories are played on so many days, for which there are partitions.
const DAYS: usize = 40;

#[derive(Debug, Clone)]
enum Step {
    Ask {
        session: usize,
        under: usize,
        tool: usize,
        arguments: usize,
        again: Option<usize>,
    },
    Report {
        which: usize,
        status: OutcomeStatus,
    },
    /// The tree is read again before the next decision.
    Refresh,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let again = prop_oneof![4 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    let ask = (0..5_usize, 0..2_usize, 0..4_usize, 0..3_usize, again)
        .prop_map(|(session, under, tool, arguments, again)| Step::Ask { session, under, tool, arguments, again });
    let status = select(vec![OutcomeStatus::Success, OutcomeStatus::Error, OutcomeStatus::Unknown]);
    let report = (0..4_usize, status).prop_map(|(which, status)| Step::Report { which, status });
    (0..2_usize, prop_oneof![6 => ask, 3 => report, 2 => Just(Step::Refresh)])
}

/// One replica's cache: as with a gate's, what it holds may have been moved by the other.
struct Replica {
    store: Arc<dyn DecisionStore>,
    slots: Slots,
    roots: BTreeMap<SessionId, SessionId>,
    ledger: BTreeMap<LedgerKey, LedgerRow>,
    counters: BTreeMap<CounterKey, u64>,
}

/// A history on one store.
struct Play {
    no: usize,
    policy: Policy,
    replicas: [Replica; 2],
    now: Timestamp,
    /// Sums added to counters. A store may report them late.
    counters: BTreeMap<CounterKey, u64>,
    asked: Vec<Request>,
    permitted: Vec<(SessionId, CallId)>,
    /// Ledger rows that were asked for, each by a tree.
    keys: BTreeSet<(SessionId, LedgerKey)>,
    lost: BTreeSet<&'static str>,
}

impl Replica {
    fn new(store: &Arc<dyn DecisionStore>) -> Self {
        let (roots, ledger, counters) = Default::default();
        Self { store: Arc::clone(store), slots: Slots::default(), roots, ledger, counters }
    }

    /// The tree as it was read last: of one that was lost, only what happened since is read.
    async fn slot(&self, root: &SessionId, now: Timestamp) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(DEFAULT_TENANT, root) {
            return slot;
        }
        let known = match self.slots.take_stored(DEFAULT_TENANT, root) {
            Some(known) => self.store.catch_up(*known).await.expect("readable"),
            None => None,
        };
        let read = match known {
            Some(tree) => Some(tree),
            None => self.store.tree(DEFAULT_TENANT, root, None).await.expect("readable"),
        };
        self.slots.put_tree(read.unwrap_or_else(|| CallTree::new(DEFAULT_TENANT, root.clone(), now)))
    }

    fn shared_state(&self, key: Option<LedgerKey>) -> SharedState {
        let ledger = key.and_then(|key| self.ledger.get(&key).cloned());
        SharedState { counters: self.counters.clone(), ledger, ..SharedState::default() }
    }
}

impl Play {
    fn new(no: usize, replicas: &Replicas, at: Timestamp) -> Self {
        let mut policy = policy(&["same_call", "budget"]);
        policy.rules.get_mut::<Budgets>().agent = BudgetLimits::new([(Dimension::ToolCalls, 5)]);
        let replicas = [0, 1].map(|n| Replica::new(&replicas[n]));
        let now = at.plus_ms((no % DAYS) as u64 * 86_400_000);
        let (counters, asked, permitted, keys, lost) = Default::default();
        Self { no, policy, replicas, now, counters, asked, permitted, keys, lost }
    }

    fn name(&self, name: &str) -> SessionId {
        session(&format!("{name}-{}", self.no))
    }

    async fn step(&mut self, (who, step): &(usize, Step)) -> String {
        self.now = self.now.plus_ms(1_000);
        match *step {
            Step::Refresh => {
                self.refresh(*who).await;
                self.replicas[*who].counters.clone_from(&self.counters);
                String::new()
            }
            Step::Ask { session, under, tool, arguments, again } => {
                let back = again.and_then(|back| self.asked.len().checked_sub(1 + back));
                let request = match back {
                    Some(at) => self.asked[at].clone(),
                    None => self.request(session, under, tool, arguments),
                };
                self.ask(*who, request).await
            }
            Step::Report { which, status } => match self.permitted.len().checked_sub(1 + which) {
                Some(at) => self.report(*who, at, status).await,
                None => String::new(),
            },
        }
    }

    /// Sessions 0 and 1 are roots, and the others begin below one of them, or a child of it.
    fn request(&mut self, of: usize, under: usize, tool: usize, arguments: usize) -> Request {
        let parents = [["root"; 2], ["other"; 2], ["root", "other"], ["root", "other"], ["child", "sibling"]];
        let (tool, call) = (["pay", "save", "put", "look"][tool], format!("c{}", self.asked.len()));
        let arguments = format!(r#"{{"n":{arguments},"history":{}}}"#, self.no);
        let request = ask(self.name(NAMES[of]).as_str(), &call, tool, &arguments);
        let parent = (of > 1).then(|| self.name(parents[of][under]));
        let agent = agent(&format!("{}-{}", ["ann", "bob"][under], self.no));
        let request = Request { parent, agent, ..request };
        self.asked.push(request.clone());
        request
    }

    async fn ask(&mut self, who: usize, request: Request) -> String {
        let (policy, now) = (self.policy.clone(), self.now);
        let proposal: Proposal = policy.propose(request);
        let Request { session, parent, call_id, .. } = &proposal.request;
        let replica = &self.replicas[who];
        let known = replica.roots.get(session).or_else(|| parent.as_ref().and_then(|parent| replica.roots.get(parent)));
        let root = known.or(parent.as_ref()).unwrap_or(session).clone();
        let slot = replica.slot(&root, now).await;
        let key = engine::ledger_key(&root, &proposal);
        self.keys.extend(key.map(|key| (root.clone(), key)));
        let shared = replica.shared_state(key);
        let judge = |tree: &CallTree| engine::evaluate(&policy, tree, &shared, &proposal, None, now);
        match slot.advance(|tree| judge(tree)).expect("whole") {
            Err(rejection) => format!("{rejection:?}"),
            Ok(Evaluation::Replay(verdict)) => format!("{:?} again", verdict.decision),
            Ok(Evaluation::New(verdict, change)) => {
                let stored = self.append(who, &slot, *change).await;
                if stored.is_ok() && verdict.permit.is_some() {
                    self.permitted.push((session.clone(), call_id.clone()));
                }
                format!("{:?} {} {stored:?}", verdict.decision, verdict.seq)
            }
        }
    }

    async fn report(&mut self, who: usize, at: usize, status: OutcomeStatus) -> String {
        let ((of, call), now) = (self.permitted[at].clone(), self.now);
        let replica = &self.replicas[who];
        let Some(root) = replica.roots.get(&of).cloned() else { return "unknown".to_owned() };
        let slot = replica.slot(&root, now).await;
        let known = slot.advance(|tree| {
            tree.sessions.get(&of).and_then(|session| engine::ledger_key_of(&root, session.find_reported_call(&call)?))
        });
        let shared = replica.shared_state(known.expect("whole"));
        let mut report = report(of.as_str(), call.as_str(), status);
        report.result = (status == OutcomeStatus::Success).then(|| format!("result of {call}"));
        match slot.advance(|tree| engine::record(&self.policy, tree, &shared, &report, now)).expect("whole") {
            Err(rejection) => format!("{rejection:?}"),
            Ok(recorded) => match recorded.change {
                Some(change) => format!("{:?}", self.append(who, &slot, *change).await),
                None => "told before".to_owned(),
            },
        }
    }

    async fn append(&mut self, who: usize, slot: &Arc<Slot>, change: Change) -> Result<(), ConflictCause> {
        let replica = &mut self.replicas[who];
        let queue = replica.store.queue_slot().await.expect("a slot");
        let pending = slot.advance(|tree| queue.send(engine::advance(tree, change.clone()), slot)).expect("whole");
        if let Err(lost) = pending.wait_for_commit().await {
            replica.slots.invalidate(DEFAULT_TENANT, slot);
            self.lost.insert(lost.as_str());
            if lost == ConflictCause::Counter {
                replica.counters.clone_from(&self.counters);
            }
            self.refresh(who).await;
            return Err(lost);
        }
        for add in &change.counters {
            for counters in [&mut self.counters, &mut replica.counters] {
                let used = counters.entry(add.key.clone()).or_default();
                *used = used.saturating_add_signed(add.amount);
            }
        }
        replica.ledger.extend(change.ledger.into_iter().map(|change| (change.key, change.row)));
        let sessions = slot.advance(|tree| tree.sessions.keys().cloned().collect::<Vec<_>>());
        replica.roots.extend(sessions.into_iter().flatten().map(|of| (of, slot.root().clone())));
        Ok(())
    }

    /// Reads anew where sessions belong, and the ledger. Trees stay: only a lost change makes a replica load them.
    async fn refresh(&mut self, who: usize) {
        let names = NAMES.map(|name| self.name(name));
        let Replica { store, roots, ledger, .. } = &mut self.replicas[who];
        for name in names {
            let found = store.find(DEFAULT_TENANT, &name, None).await.expect("readable");
            roots.extend(found.map(|found| (name, found.root)));
        }
        for (root, key) in &self.keys {
            let rows = store.ledger_rows(DEFAULT_TENANT, root, vec![Some(*key)]).await.expect("readable");
            ledger.extend(rows.into_iter().flatten().map(|row| (*key, row)));
        }
    }

    /// Everything that the store says in the end.
    async fn dump_store(&self, store: &dyn DecisionStore) -> Vec<String> {
        let mut said = Vec::new();
        for name in NAMES.map(|name| self.name(name)) {
            let Some(found) = store.find(DEFAULT_TENANT, &name, None).await.expect("readable") else {
                said.push(format!("{name} is unknown"));
                continue;
            };
            let tree = store.tree(DEFAULT_TENANT, &found.root, None).await.expect("readable").expect("stored");
            let head = store.head(DEFAULT_TENANT, &found.root).await.expect("readable");
            assert_eq!(head, Some((tree.version, tree.started_at)));
            let past = store.past_calls(DEFAULT_TENANT, &name, 100).await.expect("readable");
            said.push(format!("{name} in {}, which is {tree:#?}\n{past:#?}", found.root));
        }
        for Request { session, call_id, .. } in &self.asked {
            let events = store.call(DEFAULT_TENANT, session, call_id).await.expect("readable");
            let arguments = store.arguments(DEFAULT_TENANT, session, call_id).await.expect("readable");
            let result = store.result(DEFAULT_TENANT, session, call_id).await.expect("readable");
            let places: Vec<_> = events.iter().map(|event| (event.seq(), event.at())).collect();
            said.push(format!("{call_id}: {places:?} {arguments:?} {result:?}"));
        }
        for (root, key) in &self.keys {
            let row = store.ledger_rows(DEFAULT_TENANT, root, vec![Some(*key)]).await.expect("readable");
            said.push(format!("{root}: {row:#?}"));
        }
        let counters = store.counters(DEFAULT_TENANT, self.counters.keys().map(|key| (key.clone(), 0)).collect()).await;
        assert_eq!(counters.expect("readable"), self.counters, "what was accepted is counted");
        said
    }
}

/// Answers of one store to each step, and its state after them. `reader` has read nothing before.
async fn play(
    no: usize,
    replicas: &Replicas,
    reader: &dyn DecisionStore,
    at: Timestamp,
    steps: &[(usize, Step)],
) -> (Vec<String>, BTreeSet<&'static str>) {
    let mut play = Play::new(no, replicas, at);
    let mut said = Vec::new();
    for step in steps {
        let answer = play.step(step).await;
        said.push(format!("{step:?}: {answer}"));
    }
    said.extend(play.dump_store(reader).await);
    (said, play.lost)
}

#[test]
fn histories_end_alike_on_postgres_and_in_memory() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let postgres = runtime.block_on(Postgres::start());
    let (stored, in_memory) = (runtime.block_on(on_postgres(&postgres)), runtime.block_on(async { in_memory() }));
    let at = now(&*stored[0]);
    let config = Config { failure_persistence: None, max_shrink_time: 60_000, ..Config::default() };
    let is_usual = std::env::var_os("PROPTEST_CASES").is_none();
    let config = match is_usual {
        true => Config { cases: HISTORIES, rng_seed: RngSeed::Fixed(2_026), ..config },
        false => config,
    };
    let (no, lost) = (AtomicUsize::new(0), std::cell::RefCell::new(BTreeSet::new()));
    let played = TestRunner::new(config).run(&vec(step(), 20..=STEPS), |steps| {
        let no = no.fetch_add(1, Ordering::Relaxed);
        let [here, there] = runtime.block_on(async {
            let reader = crate::common::gates::store(&postgres).await;
            let there = play(no, &stored, &reader, at, &steps).await;
            [play(no, &in_memory, &*in_memory[0], at, &steps).await, there]
        });
        lost.borrow_mut().extend(here.1);
        let differs = here.0.iter().zip(&there.0).find(|(here, there)| here != there);
        prop_assert!(differs.is_none(), "in memory {}\non PostgreSQL {}", differs.unwrap().0, differs.unwrap().1);
        Ok(())
    });
    played.unwrap_or_else(|failed| panic!("{failed}"));
    let lost: Vec<_> = lost.into_inner().into_iter().collect();
    assert!(!is_usual || lost == ["counter", "ledger", "session", "version"], "somebody lost by {lost:?} alone");
    runtime.block_on(async { drop((stored, in_memory)) });
}
