//! Small world: two call trees of one tenant, a ledger, counters and a fake clock; it plays the store's part.

use std::collections::BTreeMap;

use callgate_core::{
    domain::{
        budget::{BudgetScope, CounterKey, Dimension, Usage},
        bulkhead::FullBulkhead,
        call::{ApprovalStatus, Proposal, Request},
        control::{Command, Operation},
        event::Change,
        failure::ErrorReport,
        halt::{Halt, HaltTarget},
        health::Health,
        ids::{AgentId, CallId, DEFAULT_TENANT, RunId, SessionId, ToolName},
        json,
        ledger::LedgerRow,
        outcome::OutcomeStatus,
        pattern::Pattern,
        rejection::{EvaluateRejection, RecordRejection},
        report::OutcomeReport,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Evaluation, RecordResult, SharedState},
    offline::event_store::{Conflict, EventStore},
    policy::Policy,
    rules::bulkhead,
};

use crate::alphabet::{ARGUMENTS, Ask, Control, Ending, RESULTS, Step};

/// Sessions with parent and root.
const SESSIONS: [(&str, Option<&str>, &str); 4] = [
    ("root", None, "root"),
    ("child", Some("root"), "root"),
    ("grandchild", Some("child"), "root"),
    ("other", None, "other"),
];

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) policy: Policy,
    /// As they were decided on, ahead of the store.
    pub(crate) trees: BTreeMap<SessionId, CallTree>,
    pub(crate) store: EventStore,
    /// Health of tools, from the reports.
    tools: BTreeMap<ToolName, Health>,
    halts: Vec<Halt>,
    /// The counters as the engine last saw them.
    pub(crate) seen_counters: BTreeMap<CounterKey, u64>,
    /// True if the engine sees the counters only after a read.
    pub(crate) counters_lag: bool,
    pub(crate) now: Timestamp,
    runs: [u32; SESSIONS.len()],
    /// Last active session.
    turn: usize,
    asked: Vec<(usize, Proposal)>,
    permitted: Vec<(usize, CallId)>,
    /// The last batch: session, time, and its first call's `seq`.
    batch: Option<(SessionId, Timestamp, u64)>,
    fresh: u64,
}

/// Result of a request.
#[derive(Debug)]
pub(crate) struct RequestResult {
    pub(crate) who: usize,
    pub(crate) proposal: Proposal,
    pub(crate) verdict: Verdict,
    /// False when the store refused the change: a counter had moved.
    pub(crate) stored: bool,
}

fn session_id(who: usize) -> SessionId {
    SessionId::parse("session", SESSIONS[who].0).expect("valid")
}

fn root_id(who: usize) -> SessionId {
    SessionId::parse("root", SESSIONS[who].2).expect("valid")
}

impl World {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            trees: BTreeMap::new(),
            store: EventStore::new(DEFAULT_TENANT).with_log(),
            tools: BTreeMap::new(),
            halts: Vec::new(),
            seen_counters: BTreeMap::new(),
            counters_lag: false,
            now: Timestamp::from_millis(1_700_000_000_000),
            runs: [0; SESSIONS.len()],
            turn: 0,
            asked: Vec::new(),
            permitted: Vec::new(),
            batch: None,
            fresh: 0,
        }
    }

    /// A world after its history.
    pub(crate) fn after(policy: &Policy, history: &[Step]) -> Self {
        let mut world = Self::new(policy.clone());
        for step in history {
            let _ = world.step(step);
        }
        world
    }

    /// The result of a step with an answered request.
    pub(crate) fn step(&mut self, step: &Step) -> Option<RequestResult> {
        match step {
            Step::Ask(ask) => return self.ask(ask),
            Step::Report { which, outcome } => {
                let newest = self.permitted.len().checked_sub(1)?;
                let (who, call_id) = self.permitted[newest - which % (newest + 1)].clone();
                drop(self.report(who, &call_id, outcome));
            }
            Step::Observe(ask, ending) => self.observe(ask, ending),
            Step::Pass(millis) => self.now = self.now.plus_ms(*millis),
            Step::NextRun { who } => self.runs[*who] += 1,
            Step::Control { who, what } => self.control(*who, what),
        }
        None
    }

    fn control(&mut self, who: usize, what: &Control) {
        let session = session_id(who);
        let operation = match what {
            Control::Halt { tool, on } => {
                let named = |tool: usize| ToolName::parse("tool", &format!("tool{tool}")).expect("valid");
                let what = tool.map_or_else(|| HaltTarget::Session(session), |tool| HaltTarget::Tool(named(tool)));
                self.halts.retain(|halt| halt.what != what);
                let halt = Halt { what, by: "eve".to_owned(), reason: String::new(), at: self.now };
                self.halts.extend(on.then_some(halt));
                return;
            }
            Control::Answer { approve } => {
                let calls = self.tree(who).and_then(|tree| tree.sessions.get(&session)).map(|session| &session.calls);
                let approvals = calls.into_iter().flatten().rev().filter_map(|call| call.approval.as_ref());
                let Some(open) = approvals.into_iter().find(|approval| approval.answer == ApprovalStatus::Pending)
                else {
                    return;
                };
                let approval_id = open.id.clone();
                match *approve {
                    Some(approve) => Operation::Answer { approval_id, approve, clears: None, edited: None },
                    None => Operation::Withdraw { approval_id },
                }
            }
            Control::Phase { act, plan } => {
                let plan = plan.then(|| vec![ToolName::parse("tool", "tool2").expect("valid")]);
                Operation::SetPhase { phase: if *act { "ACT" } else { "LOOK" }.to_owned(), plan }
            }
            Control::Compacted => Operation::MarkCompacted,
            Control::Raise { of_run, extra } => Operation::RaiseBudget {
                scope: if *of_run { BudgetScope::Run } else { BudgetScope::CallTree },
                dimension: Dimension::Steps,
                extra: u64::from(*extra),
            },
            Control::Grant => {
                self.fresh += 1;
                let tools = Pattern::parse("tools", "tool0|tool1").expect("valid");
                Operation::Grant { id: format!("g{}", self.fresh), tools, ceiling: 2, ttl_ms: 100_000 }
            }
        };
        self.turn(who);
        let root = root_id(who);
        // A session that has not called anything yet would become a root.
        let Some(tree) = self.tree(who).filter(|tree| tree.sessions.contains_key(&session_id(who))) else { return };
        let takes_back = matches!(operation, Operation::Withdraw { .. });
        let by = if takes_back { session_id(who).to_string() } else { "eve".to_owned() };
        let command = Command { session: session_id(who), by: by.as_str().into(), reason: None, operation };
        if let Ok(change) = engine::control(&self.policy, tree, &command, self.now) {
            self.commit(&root, change.into()).expect("a command takes no counter");
        }
    }

    fn ask(&mut self, ask: &Ask) -> Option<RequestResult> {
        let (who, proposal) = self.propose(ask);
        self.turn(who);
        // The calls of one batch are new and judged in one go.
        let joins = ask.joins && ask.again.is_none();
        let open = self.batch.as_ref().filter(|(root, at, _)| joins && *root == root_id(who) && *at == self.now);
        let batch = open.map(|(_, _, first)| *first);
        let asked = match self.judge(&self.policy, who, &proposal, batch, self.now) {
            Ok(Evaluation::Replay(verdict)) => Some(RequestResult { who, proposal, verdict, stored: true }),
            Ok(Evaluation::New(verdict, change)) => {
                let stored = self.commit(&root_id(who), *change).is_ok();
                if stored {
                    self.batch = Some((root_id(who), self.now, batch.unwrap_or(verdict.seq)));
                    self.asked.push((who, proposal.clone()));
                    if verdict.permit.is_some() {
                        self.permitted.push((who, proposal.request.call_id.clone()));
                    }
                    if let (Some(outcome), Some(_)) = (&ask.outcome, &verdict.permit) {
                        drop(self.report(who, &proposal.request.call_id, outcome));
                    }
                }
                Some(RequestResult { who, proposal, verdict, stored })
            }
            Err(_) => None,
        };
        self.now = self.now.plus_ms(ask.then_ms);
        asked
    }

    /// Two trees never act in the same millisecond: who came first would be a matter of chance.
    fn turn(&mut self, who: usize) {
        self.now = self.now.plus_ms(u64::from(root_id(self.turn) != root_id(who)));
        self.turn = who;
    }

    fn observe(&mut self, ask: &Ask, ending: &Ending) {
        let (who, proposal) = self.propose(ask);
        self.turn(who);
        let root = root_id(who);
        let shared = SharedState {
            counters: self.seen_counters.clone(),
            ledger: self.row(who, &proposal).cloned(),
            health: self.health(&proposal.request.tool),
            ..SharedState::default()
        };
        let call_id = proposal.request.call_id.clone();
        let report =
            OutcomeReport { observed: Some(Box::new(proposal)), ..report_of(session_id(who), call_id.clone(), ending) };
        let new = CallTree::new(DEFAULT_TENANT, root.clone(), self.now);
        let tree = self.tree(who).unwrap_or(&new);
        let recorded = engine::record(&self.policy, tree, &shared, &report, self.now).expect("a fact is not refused");
        self.take_in(&recorded);
        self.commit(&root, *recorded.change.expect("a new call")).expect("a report is a fact and is never refused");
        self.permitted.push((who, call_id));
    }

    /// The proposal by the policy, and the index of its session.
    pub(crate) fn propose(&mut self, ask: &Ask) -> (usize, Proposal) {
        if let (Some(back), Some(newest)) = (ask.again, self.asked.len().checked_sub(1)) {
            let (who, before) = self.asked[newest - back % (newest + 1)].clone();
            let request = Request { run: self.run(who), ..before.request };
            return (who, self.policy.propose(request));
        }
        self.fresh += 1;
        let (session, parent, _) = SESSIONS[ask.who];
        let call_id = CallId::parse("call_id", &format!("call-{}", self.fresh)).expect("valid");
        let tool = ToolName::parse("tool", &format!("tool{}", ask.tool)).expect("valid");
        let arguments = json::parse(ARGUMENTS[ask.arguments]).expect("valid");
        let session = SessionId::parse("session", session).expect("valid");
        let request = Request {
            parent: parent.map(|parent| SessionId::parse("parent", parent).expect("valid")),
            run: self.run(ask.who),
            agent: AgentId::parse("agent", if ask.who.is_multiple_of(2) { "ann" } else { "bob" }).ok(),
            witness: (!ask.who.is_multiple_of(3)).then(|| "one state".into()),
            usage: Usage { input_tokens: ask.tokens, cost_micros: ask.used_micros, ..Usage::default() },
            cost_estimate_micros: ask.cost_micros,
            repeat_intended: ask.repeat_intended,
            ..Request::new(DEFAULT_TENANT, session, call_id, tool, arguments)
        };
        (ask.who, self.policy.propose(request))
    }

    fn run(&self, who: usize) -> Option<RunId> {
        (self.runs[who] > 0).then(|| RunId::parse("run", &format!("run-{}", self.runs[who])).expect("valid"))
    }

    /// Judges without storing anything.
    pub(crate) fn judge(
        &self,
        policy: &Policy,
        who: usize,
        proposal: &Proposal,
        batch: Option<u64>,
        now: Timestamp,
    ) -> Result<Evaluation, EvaluateRejection> {
        let ledger = self.row(who, proposal).cloned();
        let health = self.health(&proposal.request.tool);
        let halts = self.halts.as_slice().into();
        let bulkhead = self.full_bulkhead(policy, proposal, now);
        let shared = SharedState {
            counters: self.seen_counters.clone(),
            ledger,
            health,
            bulkhead,
            halts,
            ..SharedState::default()
        };
        let new = CallTree::new(DEFAULT_TENANT, root_id(who), now);
        engine::evaluate(policy, self.tree(who).unwrap_or(&new), &shared, proposal, batch, now)
    }

    fn full_bulkhead(&self, policy: &Policy, proposal: &Proposal, now: Timestamp) -> Option<FullBulkhead> {
        let (claim, full) = bulkhead::claims(&policy.rules, proposal, now, 0).pop()?;
        let Request { tool, call_id, .. } = &proposal.request;
        let calls =
            self.trees.values().flat_map(|tree| tree.sessions.values()).flat_map(|session| session.calls.iter());
        let open = calls.filter(|call| call.is_open() && call.tool == *tool && call.call_id != *call_id).count();
        (open >= claim.max as usize).then(|| FullBulkhead { place: 1, wait_ms: claim.wait_ms(1), ..full })
    }

    fn health(&self, tool: &ToolName) -> Health {
        self.tools.get(tool).cloned().unwrap_or_default()
    }

    fn take_in(&mut self, recorded: &RecordResult) {
        if let Some((tool, observation)) = &recorded.observation {
            let allowance = self.policy.retry.allowance;
            self.tools.entry(tool.clone()).or_default().record_report(observation, &allowance);
        }
    }

    pub(crate) fn tree(&self, who: usize) -> Option<&CallTree> {
        self.trees.get(&root_id(who))
    }

    /// The ledger's row of a proposed write.
    pub(crate) fn row(&self, who: usize, proposal: &Proposal) -> Option<&LedgerRow> {
        engine::ledger_key(&root_id(who), proposal).and_then(|key| self.store.ledger().get(&key))
    }

    fn report(&mut self, who: usize, call_id: &CallId, ending: &Ending) -> Result<RecordResult, RecordRejection> {
        let session = session_id(who);
        let root = root_id(who);
        let tree = self.trees.get(&root).ok_or(RecordRejection::UnknownCall)?;
        let call = tree.sessions.get(&session).and_then(|session| session.call(call_id));
        let key = call.and_then(|call| engine::ledger_key_of(&root, call));
        let ledger = key.and_then(|key| self.store.ledger().get(&key).cloned());
        let health = call.map(|call| self.health(&call.tool)).unwrap_or_default();
        let shared = SharedState { counters: self.seen_counters.clone(), ledger, health, ..SharedState::default() };
        let report = report_of(session, call_id.clone(), ending);
        let recorded = engine::record(&self.policy, tree, &shared, &report, self.now)?;
        if let Some(change) = recorded.change.clone() {
            self.commit(&root, *change).expect("a report is a fact and is never refused");
        }
        self.take_in(&recorded);
        Ok(recorded)
    }

    /// Folds a change in and stores it; a tree whose change was not stored is read anew.
    fn commit(&mut self, root: &SessionId, change: Change) -> Result<(), Conflict> {
        let new = || CallTree::new(DEFAULT_TENANT, root.clone(), self.now);
        let tree = self.trees.entry(root.clone()).or_insert_with(new);
        let append = engine::advance(tree, change);
        assert_eq!(append.expected + append.change.events.len() as u64, tree.version);
        let stored = self.store.append(append);
        match stored {
            Ok(()) if !self.counters_lag => self.seen_counters.clone_from(self.store.counters()),
            Ok(()) => {}
            Err(conflict) => {
                let is_behind = self.counters_lag && conflict == Conflict::Counter;
                assert!(is_behind, "{conflict:?}, though nobody else moves anything");
                self.trees.remove(root);
                self.trees.extend(self.store.tree(root).map(|tree| (root.clone(), tree.clone())));
            }
        }
        stored
    }
}

fn report_of(session: SessionId, call_id: CallId, ending: &Ending) -> OutcomeReport {
    let error = (ending.status == OutcomeStatus::Error).then(|| ErrorReport {
        error_type: Some(ending.kind.as_str().to_owned()),
        message: format!("{} from the provider", ending.kind.as_str()),
        retry_after_ms: ending.after_ms,
        ..ErrorReport::default()
    });
    OutcomeReport {
        error,
        result: (ending.status == OutcomeStatus::Success).then(|| RESULTS[ending.result].to_owned()),
        usage: Usage { cost_micros: ending.cost_micros, output_tokens: ending.tokens, ..Usage::default() },
        ..OutcomeReport::new(session, call_id, ending.status)
    }
}
