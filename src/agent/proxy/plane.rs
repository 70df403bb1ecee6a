//! The proxy's side of the contract: asks before a call, and reports after it. A server that is away for a moment is
//! asked again; a report goes on being sent for longer, beside all else.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tonic::{Code, Request, Status};

use crate::hooks::until_called_off;
use callgate_client::remote::{Wire, reason, refusal};
use callgate_proto::time::duration;
use callgate_proto::v1::{
    Caller, EvaluateRequest, OutcomeStatus, RecordRequest, ToolCall, Verdict, WithdrawApprovalRequest,
    approval_service_client::ApprovalServiceClient, gate_service_client::GateServiceClient,
};

/// How long a server may be away before its client is told.
const AWAY: Duration = Duration::from_secs(5);
/// How long a report is sent again.
const REPORT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// Longest wait that a server takes.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Why nobody judged.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server is out of reach.
    Away(String),
    /// It does not judge this.
    Refused(String),
}

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Plane {
    gate: GateServiceClient<Wire>,
    approvals: ApprovalServiceClient<Wire>,
    caller: Caller,
    reports: watch::Sender<Reports>,
}

/// Reports that are not stored yet.
#[derive(Debug, Clone, Copy, Default)]
struct Reports {
    /// Which were not sent once: what is asked next would be judged without them.
    first: usize,
    all: usize,
}

impl Plane {
    pub(super) fn new(wire: Wire, caller: Caller) -> Self {
        let (gate, approvals) = (GateServiceClient::new(wire.clone()), ApprovalServiceClient::new(wire));
        // What a call hands back may be as large as what it gave, with its escapes.
        let gate = gate.max_decoding_message_size(16 << 20);
        Self { gate, approvals, caller, reports: watch::Sender::new(Reports::default()) }
    }

    /// May this call run? Reports on earlier calls are stored before.
    pub(super) async fn ask(&self, call: &ToolCall, wait: Duration) -> Result<Verdict, Failure> {
        let mut reports = self.reports.subscribe();
        let _ = reports.wait_for(|reports| reports.first == 0).await;
        let wait = wait.min(WAIT_MAX);
        let message = EvaluateRequest {
            caller: Some(self.caller.clone()),
            call: Some(call.clone()),
            max_wait: (!wait.is_zero()).then(|| duration(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))),
            ..EvaluateRequest::default()
        };
        let began = Instant::now();
        loop {
            let status = match self.gate.clone().evaluate(within(wait + AWAY, message.clone())).await {
                Ok(answer) => {
                    let verdict = answer.into_inner().verdict;
                    return verdict.ok_or_else(|| Failure::Refused("the server gave no verdict".to_owned()));
                }
                Err(status) => status,
            };
            if !is_passing(&status) {
                return Err(Failure::Refused(refusal(&status).to_string()));
            }
            if began.elapsed() >= AWAY {
                return Err(Failure::Away(refusal(&status).to_string()));
            }
            sleep(PAUSE).await;
        }
    }

    /// Reports what came of a call, beside all else.
    pub(super) fn report(self: &Arc<Self>, message: RecordRequest) {
        let message = RecordRequest { caller: Some(self.caller.clone()), ..message };
        self.reports.send_modify(|reports| {
            reports.first += 1;
            reports.all += 1;
        });
        let plane = Arc::clone(self);
        tokio::spawn(async move {
            let began = Instant::now();
            let mut outcome = plane.send(&message).await;
            plane.reports.send_modify(|reports| reports.first -= 1);
            while outcome.as_ref().is_err_and(is_passing) && began.elapsed() < REPORT {
                sleep(PAUSE).await;
                outcome = plane.send(&message).await;
            }
            if let Err(status) = outcome.or_else(without_news) {
                let (call, why) = (&message.call_id, refusal(&status));
                errln!("callgate: what came of call {call} is not recorded, and counts as unknown: {why}");
            }
            plane.reports.send_modify(|reports| reports.all -= 1);
        });
    }

    /// Calls a call off that no answer came to, beside all else: it may have been permitted.
    pub(super) fn give_up(self: &Arc<Self>, call_id: &str) {
        let message = RecordRequest {
            caller: Some(self.caller.clone()),
            call_id: call_id.to_owned(),
            status: OutcomeStatus::Cancelled.into(),
            not_started: true,
            ..RecordRequest::default()
        };
        let plane = Arc::clone(self);
        plane.reports.send_modify(|reports| reports.all += 1);
        tokio::spawn(async move {
            let report = || {
                let (plane, message) = (Arc::clone(&plane), message.clone());
                async move { plane.send(&message).await }
            };
            until_called_off(report).await;
            plane.reports.send_modify(|reports| reports.all -= 1);
        });
    }

    async fn send(&self, message: &RecordRequest) -> Result<(), Status> {
        self.gate.clone().record(within(AWAY, message.clone())).await.map(|_| ())
    }

    /// Waits until all reports are stored, so long at most.
    pub(super) async fn reported(&self, limit: Duration) {
        let _ = timeout(limit, self.reports.subscribe().wait_for(|reports| reports.all == 0)).await;
    }

    /// Takes a question back that nobody needs an answer to.
    pub(super) async fn withdraw(&self, approval_id: String) {
        let reason = "the client called it off".to_owned();
        let message = WithdrawApprovalRequest { approval_id, reason };
        let mut message = within(AWAY, message);
        // Where nobody has a credential, whose question it is is said by the session's name.
        if let Ok(by) = self.caller.session_id.parse() {
            message.metadata_mut().insert(callgate_proto::BY, by);
        }
        // One that was answered meanwhile stays answered.
        let _ = self.approvals.clone().withdraw_approval(message).await;
    }
}

fn within<T>(limit: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

/// True for what may be over soon.
fn is_passing(status: &Status) -> bool {
    let is_broken = status.code() == Code::Unknown && reason(status).is_none();
    let code = status.code();
    is_broken
        || matches!(code, Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled)
        || reason(status).as_deref() == Some("OVERLOADED")
}

/// The host's own hook may have said first what came of it, in its words; of what was never permitted, nothing came.
fn without_news(status: Status) -> Result<(), Status> {
    let known = ["CALL_ALREADY_SETTLED", "CALL_NOT_PERMITTED", "ATTEMPT_SUPERSEDED"];
    reason(&status).is_some_and(|reason| known.contains(&reason.as_str())).then_some(()).ok_or(status)
}
