//! Server client of the proxy: evaluates before a call and reports after it. It retries a briefly unavailable server;
//! reports are retried longer, in the background. A pending call is recorded in a file, so that another proxy can
//! cancel it if this one is killed.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tonic::{Code, Request, Status};

use super::qualify_tool_name;
use crate::{
    hooks::{is_away, until_called_off},
    mcp::reported::reported_tools,
    pending_call::PendingCall,
};
use callgate_client::remote::{AuthenticatedChannel, reason, refusal};
use callgate_core::domain::tool_descriptions::ReportedTool;
use callgate_proto::{
    time::duration,
    v1::{
        self, Caller, EvaluateRequest, OutcomeStatus, RecordRequest, ReportToolsRequest, ToolCall, Verdict,
        WithdrawApprovalRequest, approval_service_client::ApprovalServiceClient,
        gate_service_client::GateServiceClient,
    },
};

/// Time of retries before the client gets an error.
const AWAY: Duration = Duration::from_secs(5);
/// Time of retries of a report.
const REPORT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// Tools of one report: with the longest texts, a quarter of the largest message.
const TOOLS_A_REPORT: usize = 20;
/// Reported descriptions that are remembered.
const DESCRIBED_MAX: usize = 10_000;
/// Maximum wait of a request.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Failure to get a verdict.
#[derive(Debug)]
pub(super) enum VerdictFailure {
    /// The server is unreachable.
    Away(String),
    /// The server rejects the request.
    Refused(String),
}

/// A connection to the server.
#[derive(Debug)]
pub(super) struct ServerConnection {
    gate: GateServiceClient<AuthenticatedChannel>,
    approvals: ApprovalServiceClient<AuthenticatedChannel>,
    caller: Caller,
    reports: watch::Sender<Reports>,
    /// Folder of pending calls, if any.
    folder: Option<PathBuf>,
    /// Pending calls of this proxy, by id.
    asked: Mutex<HashMap<String, PendingCall>>,
    described: DescribedTools,
}

/// Reported descriptions of this process, by tool and digest: each is reported once, whatever the number of
/// connections.
#[derive(Debug, Clone, Default)]
pub(super) struct DescribedTools(Arc<Mutex<HashSet<(String, String)>>>);

impl DescribedTools {
    /// Leaves out those that were reported, and notes the others.
    fn take_new(&self, mut tools: Vec<ReportedTool>) -> Vec<ReportedTool> {
        let mut described = self.0.lock();
        if described.len() > DESCRIBED_MAX {
            described.clear();
        }
        tools.retain(|tool| described.insert(key(tool)));
        tools
    }

    fn forget(&self, tools: &[ReportedTool]) {
        let mut described = self.0.lock();
        for tool in tools {
            described.remove(&key(tool));
        }
    }
}

fn key(tool: &ReportedTool) -> (String, String) {
    (tool.tool.to_string(), tool.texts.digest.clone())
}

/// Unstored reports.
#[derive(Debug, Clone, Copy, Default)]
struct Reports {
    /// Number of reports never sent; later evaluations would miss them.
    first: usize,
    all: usize,
}

impl ServerConnection {
    pub(super) fn new(
        wire: AuthenticatedChannel,
        caller: Caller,
        folder: Option<PathBuf>,
        described: DescribedTools,
    ) -> Self {
        let (gate, approvals) = (GateServiceClient::new(wire.clone()), ApprovalServiceClient::new(wire));
        // A previous result may be as large as the original, with escapes.
        let gate = gate.max_decoding_message_size(16 << 20);
        let reports = watch::Sender::new(Reports::default());
        Self { gate, approvals, caller, reports, folder, asked: Mutex::default(), described }
    }

    /// The session's id.
    pub(super) fn session(&self) -> &str {
        &self.caller.session_id
    }

    /// Evaluates a call, after the reports on earlier calls are stored.
    pub(super) async fn ask(&self, call: &ToolCall, wait: Duration) -> Result<Verdict, VerdictFailure> {
        let (began, mut reports) = (Instant::now(), self.reports.subscribe());
        self.note(&call.call_id);
        let _ = reports.wait_for(|reports| reports.first == 0).await;
        let wait = wait.min(WAIT_MAX);
        let message = EvaluateRequest {
            caller: Some(self.caller.clone()),
            call: Some(call.clone()),
            max_wait: (!wait.is_zero()).then(|| duration(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))),
            ..EvaluateRequest::default()
        };
        loop {
            let status = match self.gate.clone().evaluate(with_timeout(wait + AWAY, message.clone())).await {
                Ok(answer) => {
                    let verdict = answer.into_inner().verdict;
                    return verdict.ok_or_else(|| VerdictFailure::Refused("the server gave no verdict".to_owned()));
                }
                Err(status) => status,
            };
            if !is_passing(&status) && !is_away(&status) {
                return Err(VerdictFailure::Refused(refusal(&status).to_string()));
            }
            if began.elapsed() >= AWAY || !is_passing(&status) {
                return Err(VerdictFailure::Away(refusal(&status).to_string()));
            }
            sleep(PAUSE).await;
        }
    }

    /// Reports an outcome in the background.
    pub(super) fn report(self: &Arc<Self>, message: RecordRequest) {
        self.send_report(RecordRequest { caller: Some(self.caller.clone()), ..message }, None);
    }

    /// Reports a recorded pending call, which is retried longer until its server has accepted it.
    fn send_report(self: &Arc<Self>, message: RecordRequest, asked: Option<PendingCall>) {
        self.reports.send_modify(|reports| {
            reports.first += 1;
            reports.all += 1;
        });
        let plane = Arc::clone(self);
        tokio::spawn(async move {
            let began = Instant::now();
            let mut outcome = plane.send(&message).await;
            plane.reports.send_modify(|reports| reports.first -= 1);
            if outcome.is_err() && message.not_started {
                until_called_off(|| plane.send(&message)).await;
                outcome = Ok(());
            }
            while outcome.as_ref().is_err_and(is_passing) && began.elapsed() < REPORT {
                sleep(PAUSE).await;
                outcome = plane.send(&message).await;
            }
            if let Err(status) = outcome.or_else(without_news) {
                let (call, why) = (&message.call_id, refusal(&status));
                errln!("callgate: what came of call {call} is not recorded, and counts as unknown: {why}");
            }
            asked.into_iter().for_each(PendingCall::forget);
            plane.reports.send_modify(|reports| reports.all -= 1);
        });
    }

    /// Reports a page of a server's tools in the background: those that this process has not reported yet. A call does
    /// not wait for it.
    pub(super) fn report_tools(self: &Arc<Self>, server: String, page: Value) {
        self.reports.send_modify(|reports| reports.all += 1);
        let plane = Arc::clone(self);
        tokio::spawn(async move {
            let (named, described) = (server.clone(), plane.described.clone());
            let read = move || described.take_new(reported_tools(&page, |tool| qualify_tool_name(&named, tool)));
            // A long list takes its time.
            let tools = tokio::task::spawn_blocking(read).await.unwrap_or_default();
            for part in tools.chunks(TOOLS_A_REPORT) {
                if let Err(status) = plane.send_tools(&server, part).await {
                    plane.described.forget(part);
                    // An older server has no such method.
                    if status.code() != Code::Unimplemented {
                        let why = refusal(&status);
                        errln!("callgate: the tools of {server} are not reported, and no alert shows a change: {why}");
                    }
                }
            }
            plane.reports.send_modify(|reports| reports.all -= 1);
        });
    }

    async fn send_tools(&self, server: &str, tools: &[ReportedTool]) -> Result<(), Status> {
        let (began, agent_id) = (Instant::now(), self.caller.agent_id.clone());
        let encode = |ReportedTool { tool, texts }: &ReportedTool| v1::ReportedTool {
            tool: tool.to_string(),
            digest: texts.digest.clone(),
            description: texts.description.clone(),
            schema_json: texts.schema.clone(),
        };
        let tools = tools.iter().map(encode).collect();
        let message = ReportToolsRequest { server: server.to_owned(), agent_id, tools };
        loop {
            match self.gate.clone().report_tools(with_timeout(AWAY, message.clone())).await {
                Err(status) if is_passing(&status) && began.elapsed() < REPORT => sleep(PAUSE).await,
                sent => return sent.map(|_| ()),
            }
        }
    }

    /// Records a pending call, once.
    fn note(&self, call_id: &str) {
        let mut asked = self.asked.lock();
        if !asked.contains_key(call_id)
            && let Some(note) =
                self.folder.as_ref().and_then(|folder| PendingCall::note(folder, &self.cancellation(call_id)))
        {
            asked.insert(call_id.to_owned(), note);
        }
    }

    fn save_pending(&self, call_id: &str) -> Option<PendingCall> {
        self.asked.lock().remove(call_id)
    }

    /// Deletes the record of a call that was answered in its server's place.
    pub(super) fn forget(&self, call_id: &str) {
        if let Some(asked) = self.save_pending(call_id) {
            asked.forget();
        }
    }

    /// Deletes the record of a call before it runs: no proxy cancels it any more. False on a write error.
    pub(super) fn starts(&self, call_id: &str) -> bool {
        self.save_pending(call_id).is_none_or(|asked| asked.starts().is_ok())
    }

    fn cancellation(&self, call_id: &str) -> RecordRequest {
        RecordRequest {
            caller: Some(self.caller.clone()),
            call_id: call_id.to_owned(),
            status: OutcomeStatus::Cancelled.into(),
            not_started: true,
            ..RecordRequest::default()
        }
    }

    /// Cancels a call that its server never received, in the background, because it may be permitted.
    pub(super) fn give_up(self: &Arc<Self>, call_id: &str) {
        self.note(call_id);
        self.send_report(self.cancellation(call_id), self.save_pending(call_id));
    }

    /// Cancels the pending calls of killed proxies.
    pub(super) fn take_over(self: &Arc<Self>) {
        let left = self.folder.as_deref().map(PendingCall::take_abandoned).unwrap_or_default();
        left.into_iter().for_each(|(asked, message)| self.send_report(message, Some(asked)));
    }

    async fn send(&self, message: &RecordRequest) -> Result<(), Status> {
        self.gate.clone().record(with_timeout(AWAY, message.clone())).await.map(|_| ())
    }

    /// Waits until all reports are stored, at most `limit`.
    pub(super) async fn wait_for_reports(&self, limit: Duration) {
        let _ = timeout(limit, self.reports.subscribe().wait_for(|reports| reports.all == 0)).await;
    }

    /// Withdraws an approval request.
    pub(super) async fn withdraw(&self, approval_id: String) {
        let reason = "the client called it off".to_owned();
        let message = WithdrawApprovalRequest { approval_id, reason };
        let mut message = with_timeout(AWAY, message);
        // Without authentication the session's name identifies the requester.
        if let Ok(by) = self.caller.session_id.parse() {
            message.metadata_mut().insert(callgate_proto::BY, by);
        }
        // One that was answered meanwhile stays answered.
        let _ = self.approvals.clone().withdraw_approval(message).await;
    }
}

fn with_timeout<T>(limit: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

/// True for a transient error.
fn is_passing(status: &Status) -> bool {
    let is_broken = status.code() == Code::Unknown && reason(status).is_none();
    let code = status.code();
    is_broken
        || matches!(code, Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled)
        || reason(status).as_deref() == Some("OVERLOADED")
}

/// The host's own hook may have reported the outcome before; a refused call has none.
fn without_news(status: Status) -> Result<(), Status> {
    let known = ["CALL_ALREADY_SETTLED", "CALL_NOT_PERMITTED", "ATTEMPT_SUPERSEDED"];
    reason(&status).is_some_and(|reason| known.contains(&reason.as_str())).then_some(()).ok_or(status)
}
