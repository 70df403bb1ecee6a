//! Demo client: evaluates before a call, reports after it, and retries with the same call_id while the server is
//! unavailable.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tonic::{Code, Status};

use callgate_client::remote::{AuthenticatedChannel, reason, refusal};
use callgate_proto::{
    time::duration,
    v1::{
        Caller, EvaluateRequest, GetServerInfoRequest, GetSessionStateRequest, ListRetryProfilesRequest, OutcomeStatus,
        RecordRequest, RecordResponse, ServerInfo, SessionState, ToolCall, ToolError, Usage, Verdict,
        gate_service_client::GateServiceClient, profile_service_client::ProfileServiceClient,
        server_service_client::ServerServiceClient,
    },
};

/// Maximum number of retries, half a second apart.
const TRIES_MAX: u32 = 120;
const PAUSE: Duration = Duration::from_millis(500);

/// Retries a request until the server answers; all of them are idempotent.
macro_rules! again {
    ($request:expr) => {{
        let mut tries = 0;
        loop {
            match $request.await {
                Ok(answer) => break anyhow::Ok(answer.into_inner()),
                Err(status) => pause(&status, &mut tries).await?,
            }
        }
    }};
}
/// Outcome of an execution.
#[derive(Debug, Clone)]
pub(super) struct ExecutionOutcome {
    status: OutcomeStatus,
    result: Option<String>,
    is_complete: Option<bool>,
    error: Option<ToolError>,
}

impl ExecutionOutcome {
    pub(super) fn success(result: &str) -> Self {
        Self { status: OutcomeStatus::Success, result: Some(result.to_owned()), is_complete: None, error: None }
    }

    /// A complete success.
    pub(super) fn complete(result: &str) -> Self {
        Self { is_complete: Some(true), ..Self::success(result) }
    }

    pub(super) fn error(message: &str) -> Self {
        let error = ToolError { message: message.to_owned(), ..ToolError::default() };
        Self { status: OutcomeStatus::Error, result: None, is_complete: None, error: Some(error) }
    }

    pub(super) fn failure(http_status: u32, message: &str) -> Self {
        let mut outcome = Self::error(message);
        if let Some(error) = &mut outcome.error {
            error.http_status = Some(http_status);
        }
        outcome
    }
}

#[derive(Debug, Clone)]
pub(super) struct DemoClient {
    gate: GateServiceClient<AuthenticatedChannel>,
    channel: AuthenticatedChannel,
    caller: Caller,
    /// Cost estimate of the next calls.
    pub(super) cost_estimate_micros: Option<u64>,
    /// Reported model cost of the next call.
    pub(super) used_cost_micros: u64,
}

impl DemoClient {
    pub(super) fn of(channel: AuthenticatedChannel, session: &str) -> Self {
        let caller = Caller { session_id: session.to_owned(), agent_id: "demo".to_owned(), ..Caller::default() };
        let gate = GateServiceClient::new(channel.clone());
        Self { gate, channel, caller, cost_estimate_micros: None, used_cost_micros: 0 }
    }

    pub(super) fn run(&mut self, run: &str) {
        run.clone_into(&mut self.caller.run_id);
    }

    /// Another agent, in a session of its own.
    pub(super) fn with_session(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.caller.session_id = format!("{}-{name}", self.caller.session_id);
        name.clone_into(&mut other.caller.agent_id);
        other
    }

    pub(super) async fn evaluate(&mut self, call_id: &str, tool: &str, args: &Value) -> anyhow::Result<Verdict> {
        self.evaluate_and_wait(call_id, tool, args, Duration::ZERO).await
    }

    /// Evaluates with a maximum server-side wait after WAIT.
    pub(super) async fn evaluate_and_wait(
        &mut self,
        call_id: &str,
        tool: &str,
        args: &Value,
        most: Duration,
    ) -> anyhow::Result<Verdict> {
        let call = ToolCall {
            call_id: call_id.to_owned(),
            tool: tool.to_owned(),
            arguments_json: args.to_string(),
            cost_estimate_micros: self.cost_estimate_micros,
            ..ToolCall::default()
        };
        let request = EvaluateRequest {
            caller: Some(self.caller.clone()),
            call: Some(call),
            usage: Some(Usage { cost_micros: self.used_cost_micros, ..Usage::default() }),
            max_wait: Some(duration(u64::try_from(most.as_millis()).unwrap_or(u64::MAX))),
            ..EvaluateRequest::default()
        };
        let gate = &mut self.gate;
        let answer = again!(gate.evaluate(request.clone()))?;
        answer.verdict.context("the server gave no verdict")
    }

    /// Server information.
    pub(super) async fn server(&self) -> anyhow::Result<ServerInfo> {
        let mut servers = ServerServiceClient::new(self.channel.clone());
        let answer = again!(servers.get_server_info(GetServerInfoRequest {}))?;
        answer.server.context("the server did not describe itself")
    }

    /// Number of counted retries after a tool's failures.
    pub(super) async fn trials(&self, tool: &str) -> anyhow::Result<f64> {
        let mut profiles = ProfileServiceClient::new(self.channel.clone());
        let request = ListRetryProfilesRequest { tool: tool.to_owned(), ..ListRetryProfilesRequest::default() };
        let answer = again!(profiles.list_retry_profiles(request.clone()))?;
        Ok(answer.profiles.iter().map(|profile| profile.trials).sum())
    }

    pub(super) async fn record(&mut self, call_id: &str, outcome: ExecutionOutcome) -> anyhow::Result<RecordResponse> {
        let request = RecordRequest {
            caller: Some(self.caller.clone()),
            call_id: call_id.to_owned(),
            status: outcome.status.into(),
            result: outcome.result,
            is_complete: outcome.is_complete,
            error: outcome.error,
            ..RecordRequest::default()
        };
        let gate = &mut self.gate;
        again!(gate.record(request.clone()))
    }

    pub(super) async fn state(&mut self) -> anyhow::Result<SessionState> {
        let request =
            GetSessionStateRequest { session_id: self.caller.session_id.clone(), last_calls: 0, summary_tokens: 0 };
        let gate = &mut self.gate;
        let answer = again!(gate.get_session_state(request.clone()))?;
        answer.state.context("the server gave no state")
    }
}

async fn pause(status: &Status, tries: &mut u32) -> anyhow::Result<()> {
    let passing = matches!(status.code(), Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled);
    // A server that dies in the middle of an answer is seen as an unknown transport error.
    let broken = status.code() == Code::Unknown && status.message().contains("transport");
    let overloaded = reason(status).as_deref() == Some("OVERLOADED");
    if !(passing || broken || overloaded) || *tries == TRIES_MAX {
        return Err(refusal(status));
    }
    if *tries == 0 && !overloaded {
        outln!("    … the server is unavailable; the same call is repeated until it answers");
    }
    *tries += 1;
    tokio::time::sleep(PAUSE).await;
    Ok(())
}
