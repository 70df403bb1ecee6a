//! Verdicts on calls, including the wait for an approval.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, interval_at, sleep},
};

use super::{
    FailOpen, lifting,
    lines::OutputItem,
    outcomes,
    plane::VerdictFailure,
    state::{OpenRequest, Proxy, RequestKey, RequestKind, RunningCall},
};
use crate::mcp::{
    answer,
    call::{ToolsCall, with_argument, with_arguments},
    message::{Message, TOOLS_CALL},
};
use callgate_net::clock::Clock;
use callgate_proto::{
    time::unix_ms,
    v1::{Decision, OutcomeStatus, Permit, ToolCall, Verdict},
};

/// Maximum WAIT that the proxy waits out itself; a longer one goes to the model.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Maximum wait of a client without progress: most time out after 60 seconds.
const UNTOLD_MAX: Duration = Duration::from_secs(50);
/// Interval of progress notifications.
const TOLD: Duration = Duration::from_secs(5);
/// Poll interval for a server that does not wait.
const AGAIN: Duration = Duration::from_millis(500);

/// A call that waits for its verdict.
#[derive(Debug)]
pub(super) struct WaitingCall {
    call: ToolsCall,
    key: RequestKey,
    asked: ToolCall,
    /// Its message.
    message: String,
    /// True once its client has cancelled it.
    off: watch::Receiver<bool>,
    client: ProxyClient,
}

/// A client.
#[derive(Debug, Clone)]
pub(super) struct ProxyClient {
    /// Number, as in [`RequestKey`].
    pub(super) number: u64,
    /// Sender of progress notifications, if possible.
    pub(super) told: Option<mpsc::Sender<OutputItem>>,
}

/// Messages of one line, some of them calls.
#[derive(Debug)]
pub(super) struct MessageBatch {
    parts: Vec<JudgedPart>,
    line: Vec<u8>,
    /// True for one message, false for a list.
    is_one: bool,
}

/// Result for a message or a batch.
#[derive(Debug, Default)]
pub(super) struct JudgedMessages {
    /// Line to forward, if any.
    pub(super) line: Option<Vec<u8>>,
    /// Replacement responses.
    pub(super) answers: Vec<String>,
}

#[derive(Debug)]
enum JudgedPart {
    Call(Box<WaitingCall>),
    Other(String),
    Answered(String),
    /// Nothing to do.
    Done,
}

/// Result for a call.
pub(super) enum JudgedCall {
    /// Forwarded, with this message if modified.
    Runs(Option<String>),
    Answered(String),
    /// Cancelled by its client.
    Off,
    /// Waits for an approval, or for a short time.
    Held(Box<Verdict>),
}

impl Proxy {
    pub(super) fn waiting(&self, client: &ProxyClient, call: ToolsCall, message: String) -> WaitingCall {
        let tool = self.options.tool(&call.tool);
        let (off, called_off) = watch::channel(false);
        let key = RequestKey { client: client.number, id: call.id.clone() };
        let mut state = self.state();
        state.held.push((key.clone(), off));
        let call_id = state.call_id(&call, &tool, &self.connection);
        let arguments_json = call.arguments.clone();
        let asked = ToolCall { call_id, tool, arguments_json, ..ToolCall::default() };
        WaitingCall { call, key, asked, message, off: called_off, client: client.clone() }
    }

    pub(super) fn batch(
        &self,
        client: &ProxyClient,
        messages: &[Message<'_>],
        line: Vec<u8>,
        is_one: bool,
    ) -> MessageBatch {
        let part = |message: &Message<'_>| {
            let raw = message.raw.to_owned();
            if !message.is(TOOLS_CALL) {
                return if self.passes(client.number, message) { JudgedPart::Other(raw) } else { JudgedPart::Done };
            }
            match ToolsCall::read(message) {
                Ok(call) => JudgedPart::Call(Box::new(self.waiting(client, call, raw))),
                Err(problem) => JudgedPart::Answered(self.unjudgeable(message.id.as_ref(), problem)),
            }
        };
        MessageBatch { parts: messages.iter().map(part).collect(), line, is_one }
    }

    /// The verdict on a call, after all waits.
    pub(super) async fn decide(self: &Arc<Self>, waiting: &WaitingCall) -> JudgedCall {
        match self.first(waiting).await {
            JudgedCall::Held(verdict) => self.hold(waiting, *verdict).await,
            fate => fate,
        }
    }

    /// Forwards a batch unchanged, or its permitted rest, with responses for the others.
    pub(super) async fn decide_batch(self: &Arc<Self>, batch: MessageBatch) -> JudgedMessages {
        let (mut kept, mut answers, mut is_whole) = (Vec::new(), Vec::new(), true);
        for part in batch.parts {
            let waiting = match part {
                JudgedPart::Call(waiting) => waiting,
                JudgedPart::Other(raw) => {
                    kept.push(raw);
                    continue;
                }
                JudgedPart::Answered(answer) => {
                    is_whole = false;
                    answers.push(answer);
                    continue;
                }
                JudgedPart::Done => {
                    is_whole = false;
                    continue;
                }
            };
            match self.decide(&waiting).await {
                JudgedCall::Runs(message) => {
                    is_whole &= message.is_none();
                    kept.push(message.unwrap_or(waiting.message));
                }
                JudgedCall::Answered(answer) => {
                    is_whole = false;
                    answers.push(answer);
                }
                JudgedCall::Off | JudgedCall::Held(_) => is_whole = false,
            }
        }
        let line = match kept.as_slice() {
            _ if is_whole => Some(batch.line),
            [] => None,
            [message] if batch.is_one => Some(message.clone().into_bytes()),
            kept => Some(format!("[{}]\n", kept.join(",")).into_bytes()),
        };
        JudgedMessages { line, answers }
    }

    /// The current verdict on a call, without waiting.
    pub(super) async fn first(self: &Arc<Self>, waiting: &WaitingCall) -> JudgedCall {
        self.fate(waiting, Duration::ZERO).await
    }

    /// Requests the verdict on a call, with a maximum wait.
    async fn fate(self: &Arc<Self>, waiting: &WaitingCall, wait: Duration) -> JudgedCall {
        if let Some(hooked) = self.decide_locally(waiting) {
            return hooked;
        }
        match self.plane.ask(&waiting.asked, wait).await {
            Ok(verdict) => match verdict.decision() {
                Decision::Allow => self.run(waiting, verdict),
                Decision::Ask | Decision::Wait => JudgedCall::Held(Box::new(verdict)),
                _ => self.refuse_call(waiting, &verdict),
            },
            Err(VerdictFailure::Refused(why)) => {
                let text = format!("callgate did not judge this call, so it was not executed: {why}");
                self.refuse_unjudged(waiting, "not_judged", &text)
            }
            Err(VerdictFailure::Away(why))
                if self.fails_open(&waiting.call.tool) && self.plane.starts(&waiting.asked.call_id) =>
            {
                self.print_line(&format!("{} runs without a decision (--fail-open): {why}", waiting.asked.tool));
                self.run_without_judgment(waiting, true)
            }
            Err(VerdictFailure::Away(why)) => {
                self.print_line(&format!("{} was not executed: {why}", waiting.asked.tool));
                self.plane.give_up(&waiting.asked.call_id);
                let text = "callgate is unavailable, so this call was not judged and not executed. Ask the user to \
                            start it with `callgate serve`.";
                self.refuse_unjudged(waiting, "callgate_unavailable", text)
            }
        }
    }

    /// Local decision without the server.
    fn decide_locally(&self, waiting: &WaitingCall) -> Option<JudgedCall> {
        if self.options.refuse_drift
            && let Some(drift) = self.load_inventory().drift(&waiting.call.tool)
        {
            let server = self.options.server_name.as_deref().unwrap_or_default();
            let text = format!(
                "The tool {drift}, and the change is not approved: the call was not executed. Ask the user to read \
                 `callgate mcp tools {server}` and to run `callgate mcp approve {server}`."
            );
            return Some(self.refuse_unjudged(waiting, "tool_drift", &text));
        }
        let is_hooked = self.options.hooked && waiting.call.tool_use_id.is_some();
        is_hooked.then(|| self.run_without_judgment(waiting, false))
    }

    fn fails_open(&self, tool: &str) -> bool {
        match self.options.fail_open {
            None => false,
            Some(FailOpen::All) => true,
            Some(FailOpen::Reads) => self.options.trust_annotations && self.state().inventory.is_annotated_read(tool),
        }
    }

    fn refuse_unjudged(&self, waiting: &WaitingCall, status: &str, text: &str) -> JudgedCall {
        self.answer_call(waiting, answer::render_unjudged(status, text, false), true)
    }

    /// The server's text as the result. Only a previous result is no error, unless the tool has an output schema.
    fn refuse_call(&self, waiting: &WaitingCall, verdict: &Verdict) -> JudgedCall {
        let is_result = verdict.decision() == Decision::Reuse && !verdict.is_error;
        let is_error = !is_result || self.state().inventory.promises_structure(&waiting.call.tool);
        let session = self.plane.session();
        let text = lifting::with_lifting(&verdict.tool_result_json, session, &waiting.asked.tool);
        self.answer_call(waiting, text, is_error)
    }

    fn answer_call(&self, waiting: &WaitingCall, text: String, is_error: bool) -> JudgedCall {
        self.plane.forget(&waiting.asked.call_id);
        if !self.release(waiting, None) {
            return JudgedCall::Off;
        }
        JudgedCall::Answered(answer::result(&waiting.call.id, &text, is_error))
    }

    /// Releases a call to its server as `kind`; false if its client has cancelled it.
    fn release(&self, waiting: &WaitingCall, kind: Option<RequestKind>) -> bool {
        let mut state = self.state();
        if *waiting.off.borrow() {
            return false;
        }
        if let Some(at) = state.held.iter().position(|(key, _)| *key == waiting.key) {
            state.held.remove(at);
        }
        state.open.extend(kind.map(|kind| OpenRequest { key: waiting.key.clone(), kind }));
        true
    }

    fn run_without_judgment(&self, waiting: &WaitingCall, is_observed: bool) -> JudgedCall {
        let running = self.running(waiting, String::new(), true);
        let kind = if is_observed { RequestKind::Call(Box::new(running)) } else { RequestKind::Other };
        if self.release(waiting, Some(kind)) {
            return JudgedCall::Runs(None);
        }
        if is_observed {
            self.plane.give_up(&waiting.asked.call_id);
        }
        JudgedCall::Off
    }

    fn running(&self, waiting: &WaitingCall, hint: String, is_unjudged: bool) -> RunningCall {
        RunningCall { asked: waiting.asked.clone(), is_unjudged, key_sent: false, hint, began: Instant::now() }
    }

    fn run(self: &Arc<Self>, waiting: &WaitingCall, verdict: Verdict) -> JudgedCall {
        let mut running = self.running(waiting, verdict.next_context_hint, false);
        let permit = verdict.permit.unwrap_or_default();
        let message = apply_arguments(waiting, &permit).ok().filter(|_| self.plane.starts(&waiting.asked.call_id));
        let Some(message) = message else {
            self.plane.give_up(&waiting.asked.call_id);
            let text = "The policy's arguments could not be written into the call, or its start could not be \
                        stored. It was not executed.";
            return self.refuse_unjudged(waiting, "not_judged", text);
        };
        running.key_sent = !permit.idempotency_argument.is_empty();
        if !self.release(waiting, Some(RequestKind::Call(Box::new(running.clone())))) {
            self.plane.give_up(&waiting.asked.call_id);
            return JudgedCall::Off;
        }
        tokio::spawn(Arc::clone(self).beat(running, lease(&permit)));
        JudgedCall::Runs(message)
    }

    /// Waits for an approval or a short time, with progress notifications.
    pub(super) async fn hold(self: &Arc<Self>, waiting: &WaitingCall, mut verdict: Verdict) -> JudgedCall {
        let told_of = waiting.client.told.as_ref().zip(waiting.call.progress_token.as_ref());
        let limit = match verdict.decision() {
            Decision::Ask if told_of.is_some() => self.options.max_wait(),
            Decision::Ask => self.options.max_wait().min(UNTOLD_MAX),
            _ => PAUSE_MAX,
        };
        let (until, mut off, mut count) = (Instant::now() + limit, waiting.off.clone(), 0);
        let mut told = interval_at(Instant::now() + TOLD, TOLD);
        loop {
            let (left, asked) = (until.saturating_duration_since(Instant::now()), Instant::now());
            if left.is_zero() {
                return self.refuse_call(waiting, &verdict);
            }
            let fate = self.fate(waiting, left);
            tokio::pin!(fate);
            let fate = loop {
                tokio::select! {
                    fate = &mut fate => break fate,
                    () = called_off(&mut off) => {
                        self.take_back(waiting, &verdict).await;
                        return JudgedCall::Off;
                    }
                    _ = told.tick() => {
                        count += 1;
                        if let Some((client, token)) = told_of {
                            let text = "callgate: the call waits for a person's approval";
                            let _ = client.send(OutputItem::from_message(&answer::progress(token, count, text))).await;
                        }
                    }
                }
            };
            match fate {
                JudgedCall::Held(next) if next.decision() == Decision::Wait && verdict.decision() == Decision::Wait => {
                    return self.refuse_call(waiting, &next);
                }
                JudgedCall::Held(next) => verdict = *next,
                fate => return fate,
            }
            if asked.elapsed() < AGAIN {
                sleep(AGAIN.min(left)).await;
            }
        }
    }

    /// Withdraws an approval request without a waiting client; a concurrent permit is not used.
    async fn take_back(&self, waiting: &WaitingCall, verdict: &Verdict) {
        if !verdict.approval_id.is_empty() {
            self.plane.withdraw(verdict.approval_id.clone()).await;
        }
        self.plane.give_up(&waiting.asked.call_id);
    }

    /// Extends the lease of a running call periodically.
    async fn beat(self: Arc<Self>, running: RunningCall, lease: Duration) {
        loop {
            sleep((lease / 2).max(PAUSE_MAX)).await;
            if !self.state().works_on(&running.asked.call_id) {
                return;
            }
            self.plane.report(outcomes::report_without_response(&running, OutcomeStatus::Running));
        }
    }
}

async fn called_off(off: &mut watch::Receiver<bool>) {
    if off.wait_for(|off| *off).await.is_err() {
        // Decided, so it cannot be cancelled any more.
        std::future::pending::<()>().await;
    }
}

/// The message with the policy's arguments; none if unchanged.
fn apply_arguments(waiting: &WaitingCall, permit: &Permit) -> Result<Option<String>, ()> {
    let mended = Some(permit.arguments_json.as_str()).filter(|mended| !mended.is_empty());
    let mut arguments = mended.map(str::to_owned);
    if !permit.idempotency_argument.is_empty() {
        let old = mended.unwrap_or(&waiting.call.arguments);
        let new = with_argument(old, &permit.idempotency_argument, &permit.idempotency_key);
        arguments = Some(new.ok_or(())?);
    }
    arguments.map(|arguments| with_arguments(&waiting.message, &arguments).ok_or(())).transpose()
}

/// Remaining lease of a permit.
fn lease(permit: &Permit) -> Duration {
    let left = unix_ms(permit.lease_expire_time.as_ref()) - Clock::System.now().as_millis();
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
}
