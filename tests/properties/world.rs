//! Small world: two call trees of one tenant, a ledger, counters and a fake clock; it plays the store's part.

use std::collections::BTreeMap;

use callgate_core::{
    domain::{
        budget::{CounterKey, Dimension, Scope, Usage},
        call::{ApprovalStatus, Proposal, Request},
        control::{Command, Operation},
        event::{Change, Event},
        failure::ErrorReport,
        fingerprint::LedgerKey,
        halt::{Halt, Halted},
        health::Health,
        ids::{AgentId, CallId, DEFAULT_TENANT, RunId, SessionId, ToolName},
        json,
        ledger::LedgerRow,
        outcome::OutcomeStatus,
        pattern::Pattern,
        rejection::{EvaluateRejection, RecordRejection},
        report::Report,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Judgement, Recorded, Shared},
    policy::Policy,
};

use crate::alphabet::{ARGUMENTS, Ask, Control, Ending, RESULTS, Step};

/// Sessions with parent and root.
const SESSIONS: [(&str, Option<&str>, &str); 4] = [
    ("root", None, "root"),
    ("child", Some("root"), "root"),
    ("grandchild", Some("child"), "root"),
    ("other", None, "other"),
];

/// One tree as it is kept, and the same folded from its events.
#[derive(Debug, Clone)]
pub(crate) struct Grown {
    pub(crate) tree: CallTree,
    pub(crate) fold: CallTree,
    pub(crate) events: Vec<Event>,
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) policy: Policy,
    pub(crate) trees: BTreeMap<SessionId, Grown>,
    pub(crate) ledger: BTreeMap<LedgerKey, LedgerRow>,
    /// The counters as the store has them, and as the engine last saw them.
    pub(crate) counters: BTreeMap<CounterKey, u64>,
    /// Health of tools, by the reports.
    tools: BTreeMap<ToolName, Health>,
    halts: Vec<Halt>,
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
pub(crate) struct Asked {
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
            ledger: BTreeMap::new(),
            counters: BTreeMap::new(),
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
    pub(crate) fn step(&mut self, step: &Step) -> Option<Asked> {
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
                let what = tool.map_or_else(|| Halted::Session(session), |tool| Halted::Tool(named(tool)));
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
                scope: if *of_run { Scope::Run } else { Scope::CallTree },
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
        let Some(grown) = self.trees.get(&root).filter(|grown| grown.tree.sessions.contains_key(&session_id(who)))
        else {
            return;
        };
        let takes_back = matches!(operation, Operation::Withdraw { .. });
        let by = if takes_back { session_id(who).to_string() } else { "eve".to_owned() };
        let command = Command { session: session_id(who), by: by.as_str().into(), reason: None, operation };
        if let Ok(change) = engine::control(&self.policy, &grown.tree, &command, self.now) {
            assert!(self.commit(&root, change.into()), "a command takes no counter");
        }
    }

    fn ask(&mut self, ask: &Ask) -> Option<Asked> {
        let (who, proposal) = self.propose(ask);
        self.turn(who);
        // The calls of one batch are new and judged in one go.
        let joins = ask.joins && ask.again.is_none();
        let open = self.batch.as_ref().filter(|(root, at, _)| joins && *root == root_id(who) && *at == self.now);
        let batch = open.map(|(_, _, first)| *first);
        let judgement = self.judge(&self.policy, who, &proposal, batch, self.now);
        let asked = match judgement {
            Ok(Judgement::Replay(verdict)) => Some(Asked { who, proposal, verdict, stored: true }),
            Ok(Judgement::New(verdict, change)) => {
                let stored = self.commit(&root_id(who), *change);
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
                Some(Asked { who, proposal, verdict, stored })
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
        let shared = Shared {
            counters: self.seen_counters.clone(),
            ledger: self.row(who, &proposal).cloned(),
            health: self.health(&proposal.request.tool),
            ..Shared::default()
        };
        let call_id = proposal.request.call_id.clone();
        let report =
            Report { observed: Some(Box::new(proposal)), ..report_of(session_id(who), call_id.clone(), ending) };
        let new = CallTree::new(DEFAULT_TENANT, root.clone(), self.now);
        let tree = self.tree(who).unwrap_or(&new);
        let recorded = engine::record(&self.policy, tree, &shared, &report, self.now).expect("a fact is not refused");
        self.take_in(&recorded);
        assert!(self.commit(&root, *recorded.change.expect("a new call")), "a report is a fact and is never refused");
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
    ) -> Result<Judgement, EvaluateRejection> {
        let root = root_id(who);
        let ledger = engine::ledger_key(&root, proposal).and_then(|key| self.ledger.get(&key).cloned());
        let health = self.health(&proposal.request.tool);
        let halts = self.halts.as_slice().into();
        let shared = Shared { counters: self.seen_counters.clone(), ledger, health, halts, ..Shared::default() };
        match self.trees.get(&root) {
            Some(grown) => engine::evaluate(policy, &grown.tree, &shared, proposal, batch, now),
            None => engine::evaluate(policy, &CallTree::new(DEFAULT_TENANT, root, now), &shared, proposal, batch, now),
        }
    }

    fn health(&self, tool: &ToolName) -> Health {
        self.tools.get(tool).cloned().unwrap_or_default()
    }

    fn take_in(&mut self, recorded: &Recorded) {
        if let Some((tool, observation)) = &recorded.observation {
            let allowance = self.policy.retry.allowance;
            self.tools.entry(tool.clone()).or_default().reported(observation, &allowance);
        }
    }

    pub(crate) fn tree(&self, who: usize) -> Option<&CallTree> {
        self.trees.get(&root_id(who)).map(|grown| &grown.tree)
    }

    /// The ledger's row of a proposed write.
    pub(crate) fn row(&self, who: usize, proposal: &Proposal) -> Option<&LedgerRow> {
        engine::ledger_key(&root_id(who), proposal).and_then(|key| self.ledger.get(&key))
    }

    fn report(&mut self, who: usize, call_id: &CallId, ending: &Ending) -> Result<Recorded, RecordRejection> {
        let session = session_id(who);
        let root = root_id(who);
        let grown = self.trees.get(&root).ok_or(RecordRejection::UnknownCall)?;
        let call = grown.tree.sessions.get(&session).and_then(|session| session.call(call_id));
        let key = call.and_then(|call| engine::ledger_key_of(&root, call));
        let ledger = key.and_then(|key| self.ledger.get(&key).cloned());
        let health = call.map(|call| self.health(&call.tool)).unwrap_or_default();
        let shared = Shared { counters: self.seen_counters.clone(), ledger, health, ..Shared::default() };
        let report = report_of(session, call_id.clone(), ending);
        let recorded = engine::record(&self.policy, &grown.tree, &shared, &report, self.now)?;
        if let Some(change) = recorded.change.clone() {
            assert!(self.commit(&root, *change), "a report is a fact and is never refused");
        }
        self.take_in(&recorded);
        Ok(recorded)
    }

    /// Plays the store: everything of a change, or nothing when a counter would pass its limit.
    fn commit(&mut self, root: &SessionId, change: Change) -> bool {
        let mut counters = self.counters.clone();
        for add in &change.counters {
            let used = counters.entry(add.key.clone()).or_default();
            let next = used.checked_add_signed(add.amount).expect("a counter never falls below 0");
            if add.limit.is_some_and(|limit| next > limit) {
                assert!(self.counters_lag, "a reservation that was let through on fresh counters passes {add:?}");
                return false;
            }
            *used = next;
        }
        for change in &change.ledger {
            let revision = self.ledger.get(&change.key).map_or(0, |row| row.revision);
            assert_eq!(revision, change.expected, "a ledger change was decided on another revision");
            assert_eq!(change.row.revision, revision + 1);
            self.ledger.insert(change.key, change.row.clone());
        }
        self.counters = counters;
        if !self.counters_lag {
            self.seen_counters.clone_from(&self.counters);
        }
        let now = self.now;
        let grown = self.trees.entry(root.clone()).or_insert_with(|| Grown {
            tree: CallTree::new(DEFAULT_TENANT, root.clone(), now),
            fold: CallTree::new(DEFAULT_TENANT, root.clone(), now),
            events: Vec::new(),
        });
        grown.events.extend(change.events.iter().cloned());
        change.events.iter().for_each(|event| grown.fold.apply(event));
        let append = engine::advance(&mut grown.tree, change);
        assert_eq!(append.totals, grown.tree.spent);
        assert_eq!(append.expected + append.change.events.len() as u64, grown.tree.version);
        true
    }
}

fn report_of(session: SessionId, call_id: CallId, ending: &Ending) -> Report {
    let error = (ending.status == OutcomeStatus::Error).then(|| ErrorReport {
        error_type: Some(ending.kind.as_str().to_owned()),
        message: format!("{} from the provider", ending.kind.as_str()),
        retry_after_ms: ending.after_ms,
        ..ErrorReport::default()
    });
    Report {
        error,
        result: (ending.status == OutcomeStatus::Success).then(|| RESULTS[ending.result].to_owned()),
        usage: Usage { cost_micros: ending.cost_micros, output_tokens: ending.tokens, ..Usage::default() },
        ..Report::new(session, call_id, ending.status)
    }
}
