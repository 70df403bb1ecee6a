//! Plays a story against a server.

use std::{collections::BTreeMap, sync::Arc};

use callgate_core::policy::{self, Policy};
use callgate_proto::v1::{
    self, approval_service_client::ApprovalServiceClient, gate_service_client::GateServiceClient,
    session_service_client::SessionServiceClient,
};
use callgate_server::gate::Gate;
use tonic::transport::Channel;

use crate::{
    common::wire,
    script::{Action, Call, Ending, Story, Values},
};

/// The longest wait that a client waits out.
const WAIT_MS_MAX: u64 = 600_000;
/// Between two stories: longer than any cooldown.
const BETWEEN_MS: u64 = 900_000;

/// What became of a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    pub(crate) decision: String,
    pub(crate) rule: String,
    pub(crate) message: String,
    /// It ran, or was refused, after a wait.
    pub(crate) waited: bool,
    pub(crate) warned: bool,
}

/// A server for each policy.
#[derive(Default)]
pub(crate) struct Player {
    planes: BTreeMap<String, wire::Plane>,
    number: u64,
}

impl Player {
    async fn plane(&mut self, text: &str) -> &wire::Plane {
        if !self.planes.contains_key(text) {
            let policy = match text {
                "" => Policy::default(),
                text => policy::compile(text).unwrap_or_else(|errors| panic!("{errors:?}")),
            };
            let plane = wire::Plane::start(&policy).await;
            self.planes.insert(text.to_owned(), plane);
        }
        &self.planes[text]
    }

    /// Plays it to its end; gives what became of each call.
    pub(crate) async fn play(&mut self, story: &Story) -> Vec<Verdict> {
        let plane = self.plane(&story.policy).await;
        let name: String = story.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let channel = plane.channel().await;
        let gate = Arc::clone(&plane.gate);
        let mut session = Session {
            calls: GateServiceClient::new(channel.clone()),
            sessions: SessionServiceClient::new(channel.clone()),
            approvals: ApprovalServiceClient::new(channel),
            gate: Arc::clone(&gate),
            caller: v1::Caller { session_id: name.clone(), agent_id: name, ..v1::Caller::default() },
            pace_ms: 2_000,
        };
        let mut verdicts = Vec::new();
        for step in &story.steps {
            match &step.action {
                Action::Pace(ms) => session.pace_ms = *ms,
                Action::Wait(ms) => gate.store.skip(*ms),
                Action::Run(run) => session.caller.run_id = run.replace("$i", &step.round.to_string()),
                Action::Compacted => session.compacted().await,
                Action::Call(call) => {
                    self.number += 1;
                    let now_ms = gate.server.now().as_millis();
                    let values = Values { round: step.round, number: self.number, now_ms };
                    verdicts.push(session.call(call, &values).await);
                }
            }
        }
        // What one story taught about a tool's health is none of the next one's business.
        gate.store.skip(BETWEEN_MS);
        verdicts
    }
}

struct Session {
    calls: wire::Client,
    sessions: SessionServiceClient<Channel>,
    approvals: ApprovalServiceClient<Channel>,
    gate: Arc<Gate>,
    caller: v1::Caller,
    pace_ms: u64,
}

impl Session {
    async fn compacted(&mut self) {
        let request = v1::MarkCompactedRequest {
            session_id: self.caller.session_id.clone(),
            ..v1::MarkCompactedRequest::default()
        };
        self.sessions.mark_compacted(request).await.expect("a known session");
    }

    async fn evaluate(&mut self, call: &v1::ToolCall) -> v1::Verdict {
        let request = v1::EvaluateRequest {
            caller: Some(self.caller.clone()),
            call: Some(call.clone()),
            ..v1::EvaluateRequest::default()
        };
        let answer = self.calls.evaluate(request).await.expect("an answer");
        answer.into_inner().verdict.expect("a verdict")
    }

    async fn call(&mut self, call: &Call, values: &Values) -> Verdict {
        let asked = wire::call(&format!("c{}", values.number), &call.tool, &values.fill(&call.arguments));
        let mut verdict = self.evaluate(&asked).await;
        let first = refusal(&verdict);
        let wait_ms = millis(verdict.retry_after.as_ref());
        let waited = verdict.decision() == v1::Decision::Wait && wait_ms < WAIT_MS_MAX;
        if waited {
            self.gate.store.skip(wait_ms + 1);
            verdict = self.evaluate(&asked).await;
        }
        match (verdict.decision(), &call.then) {
            (v1::Decision::Allow, _) => self.record(&asked.call_id, call, values).await,
            (v1::Decision::Ask, Ending::Denied(reason)) => {
                let request = v1::ResolveApprovalRequest {
                    approval_id: verdict.approval_id.clone(),
                    approve: false,
                    reason: reason.clone(),
                    ..v1::ResolveApprovalRequest::default()
                };
                self.approvals.resolve_approval(wire::from("desk", request)).await.expect("an open question");
                self.gate.store.skip(self.pace_ms);
                // It was to be asked about.
                return Verdict { decision: "ALLOW".to_owned(), ..Verdict::default() };
            }
            _ => {}
        }
        self.gate.store.skip(self.pace_ms);
        let decision = verdict.decision().as_str_name().trim_start_matches("DECISION_").to_owned();
        let (rule, message) = if waited { first } else { refusal(&verdict) };
        let warned = decision == "ALLOW" && !verdict.next_context_hint.is_empty();
        Verdict { rule, message, waited, warned, decision }
    }

    async fn record(&mut self, call_id: &str, call: &Call, values: &Values) {
        let session = self.caller.session_id.clone();
        let mut report = match &call.then {
            Ending::Result(result) => wire::success(&session, call_id, &values.fill(result)),
            Ending::Error { kind, message } => {
                let error =
                    v1::ToolError { r#type: kind.clone(), message: values.fill(message), ..v1::ToolError::default() };
                let report = wire::outcome(&session, call_id, v1::OutcomeStatus::Error);
                v1::RecordRequest { error: Some(error), ..report }
            }
            Ending::Denied(_) => panic!("nobody was asked"),
        };
        report.caller = Some(self.caller.clone());
        self.calls.record(report).await.expect("a permitted call");
    }
}

/// The rule that decided, and its text for the model; of a permitted call the hint.
fn refusal(verdict: &v1::Verdict) -> (String, String) {
    let result: serde_json::Value = serde_json::from_str(&verdict.tool_result_json).unwrap_or_default();
    let text = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
    let hint = || (String::new(), verdict.next_context_hint.clone());
    if verdict.tool_result_json.is_empty() { hint() } else { (text("reason"), text("message")) }
}

fn millis(duration: Option<&prost_types::Duration>) -> u64 {
    duration.map_or(0, |duration| {
        duration.seconds.unsigned_abs() * 1_000 + u64::from(duration.nanos.unsigned_abs()) / 1_000_000
    })
}
