//! Player of a story against a server.

use std::{collections::BTreeMap, sync::Arc};

use callgate_core::{
    domain::{
        call::Request,
        control::{Command, Operation},
        failure::ErrorReport,
        finding::Decision,
        ids::{AgentId, DEFAULT_TENANT, RunId, SessionId},
        outcome::OutcomeStatus,
        report::OutcomeReport,
        time::Timestamp,
    },
    policy::{self, Policy},
};
use callgate_net::clock::Clock;
use callgate_server::gate::{Decisions, EvaluateAnswer};
use callgate_store::MemoryStore;

use crate::{
    common::gates::{ask, metrics, report, session, success, try_evaluate_on},
    script::{Action, Call, Ending, Story, Values},
};

/// When the first story begins.
const START: Timestamp = Timestamp::from_millis(1_795_219_200_000);
/// The longest wait that a client waits out.
const WAIT_MS_MAX: u64 = 600_000;
/// Between two stories: longer than any cooldown.
const BETWEEN_MS: u64 = 900_000;

/// Verdict on a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    pub(crate) decision: String,
    pub(crate) rule: String,
    pub(crate) message: String,
    /// It ran, or was refused, after a wait.
    pub(crate) waited: bool,
    pub(crate) warned: bool,
}

/// A plane for each policy.
#[derive(Default)]
pub(crate) struct Player {
    planes: BTreeMap<String, Arc<Plane>>,
    number: u64,
}

struct Plane {
    decisions: Decisions,
    clock: Clock,
}

impl Player {
    fn plane(&mut self, text: &str) -> Arc<Plane> {
        let plane = self.planes.entry(text.to_owned()).or_insert_with(|| {
            let policy = match text {
                "" => Policy::default(),
                text => policy::compile(text).unwrap_or_else(|errors| panic!("{errors:?}")),
            };
            let clock = Clock::fake(START);
            let store = Arc::new(MemoryStore::new(clock.clone()));
            Arc::new(Plane { decisions: Decisions::new(Arc::new(policy), store, metrics(), clock.clone()), clock })
        });
        Arc::clone(plane)
    }

    /// Plays it to its end; gives what became of each call.
    pub(crate) async fn play(&mut self, story: &Story) -> Vec<Verdict> {
        let plane = self.plane(&story.policy);
        let name: String = story.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let agent = AgentId::parse("agent", &name).expect("a name");
        let mut playing =
            StoryRun { plane: Arc::clone(&plane), session: session(&name), agent, run: None, pace_ms: 2_000 };
        let mut verdicts = Vec::new();
        for step in &story.steps {
            match &step.action {
                Action::Pace(ms) => playing.pace_ms = *ms,
                Action::Wait(ms) => plane.clock.advance(*ms),
                Action::Run(run) => {
                    playing.run = RunId::parse("run", &run.replace("$i", &step.round.to_string())).ok();
                }
                Action::Compacted => playing.control("agent", Operation::MarkCompacted, None).await,
                Action::Call(call) => {
                    self.number += 1;
                    let now_ms = plane.clock.now().as_millis();
                    let values = Values { round: step.round, number: self.number, now_ms };
                    verdicts.push(playing.call(call, &values).await);
                }
            }
        }
        // The next story begins after the health of tools has expired.
        plane.clock.advance(BETWEEN_MS);
        verdicts
    }
}

/// A story's session.
struct StoryRun {
    plane: Arc<Plane>,
    session: SessionId,
    agent: AgentId,
    run: Option<RunId>,
    pace_ms: u64,
}

impl StoryRun {
    async fn control(&self, by: &str, operation: Operation, reason: Option<String>) {
        let command = Command { session: self.session.clone(), by: by.into(), reason, operation };
        Box::pin(self.plane.decisions.control(DEFAULT_TENANT, &command)).await.expect("a known session");
    }

    async fn call(&self, call: &Call, values: &Values) -> Verdict {
        let call_id = format!("c{}", values.number);
        let request = ask(self.session.as_str(), &call_id, &call.tool, &values.fill(&call.arguments));
        let request = Request { agent: Some(self.agent.clone()), run: self.run.clone(), ..request };
        let mut answer = try_evaluate_on(&self.plane.decisions, request.clone()).await.expect("an answer");
        let first = refusal(&answer);
        let wait_ms = answer.verdict.retry_after_ms().unwrap_or(0);
        let waited = answer.verdict.decision == Decision::Wait && wait_ms < WAIT_MS_MAX;
        if waited {
            self.plane.clock.advance(wait_ms + 1);
            answer = try_evaluate_on(&self.plane.decisions, request).await.expect("an answer");
        }
        let verdict = &answer.verdict;
        match (verdict.decision, &call.then) {
            (Decision::Allow, _) => self.record(&call_id, call, values).await,
            (Decision::Ask, Ending::Denied(reason)) => {
                let approval_id = verdict.approval.as_ref().expect("a question").id.clone();
                let operation = Operation::Answer { approval_id, approve: false, clears: None, edited: None };
                self.control("desk", operation, Some(reason.clone())).await;
                self.plane.clock.advance(self.pace_ms);
                // It was to be asked about.
                return Verdict { decision: "ALLOW".to_owned(), ..Verdict::default() };
            }
            _ => {}
        }
        self.plane.clock.advance(self.pace_ms);
        let (rule, message) = if waited { first } else { refusal(&answer) };
        let warned = verdict.decision == Decision::Allow && verdict.context_hint().is_some();
        Verdict { rule, message, waited, warned, decision: verdict.decision.as_str().to_owned() }
    }

    async fn record(&self, call_id: &str, call: &Call, values: &Values) {
        let session = self.session.as_str();
        let report = match &call.then {
            Ending::Result(result) => success(session, call_id, &values.fill(result)),
            Ending::Error { kind, message } => {
                let (error_type, message) = (Some(kind.clone()), values.fill(message));
                let error = Some(ErrorReport { error_type, message, ..ErrorReport::default() });
                OutcomeReport { error, ..report(session, call_id, OutcomeStatus::Error) }
            }
            Ending::Denied(_) => panic!("nobody was asked"),
        };
        Box::pin(self.plane.decisions.record(DEFAULT_TENANT, report, None)).await.expect("a permitted call");
    }
}

/// The rule that decided, and its text for the model; of a permitted call the hint.
fn refusal(answer: &EvaluateAnswer) -> (String, String) {
    let Some(text) = &answer.text else {
        return (String::new(), answer.verdict.context_hint().unwrap_or_default());
    };
    let result: serde_json::Value = serde_json::from_str(&text.json).unwrap_or_default();
    let text = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}
