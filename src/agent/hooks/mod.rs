//! Hook protocol: requests to a server for a host's event, and the answer to the host. Shared by the command on an
//! agent's machine (`src/agent/hook`) and the server's own route (`route.rs`).

mod errors;
mod messages;

use std::{future::Future, time::Duration};

use tokio::time::sleep;
use tonic::Status;

pub use self::errors::{is_away, until_called_off};
use self::{
    errors::{is_settled, is_unknown},
    messages::Messages,
};
use crate::hosts::{CallResult, HookInput, Host, HostAnswer, HostCall, HostEvent, HostFile, truncate_text};
use callgate_net::clock::Clock;
use callgate_proto::v1;

/// Maximum wait that the hook waits out itself.
const SHORT: Duration = Duration::from_secs(2);
/// Maximum wait of one request for an approval.
const LONG: Duration = Duration::from_secs(50);
/// Time reserved for the last answer.
const MARGIN: Duration = Duration::from_secs(2);
/// Interval and duration of reconnections while waiting for an approval.
const AWAY_STEP: Duration = Duration::from_secs(1);
const AWAY_MAX: Duration = Duration::from_secs(30);
/// State of a call without an outcome.
const OPEN: i32 = v1::CallState::InFlight as i32;

/// Server interface of hooks.
pub trait HookServer: Sync {
    /// Evaluates a call.
    fn evaluate(&self, ask: v1::EvaluateRequest) -> impl Future<Output = Result<v1::EvaluateResponse, Status>> + Send;
    /// Records an outcome.
    fn record(&self, report: v1::RecordRequest) -> impl Future<Output = Result<v1::RecordResponse, Status>> + Send;
    /// Reads a session's state.
    fn session_state(
        &self,
        ask: v1::GetSessionStateRequest,
    ) -> impl Future<Output = Result<v1::GetSessionStateResponse, Status>> + Send;
    /// Withdraws an approval request on behalf of its session.
    fn withdraw(&self, session: &str, approval_id: String) -> impl Future<Output = Result<(), Status>> + Send;
    /// Reports a compaction.
    fn mark_compacted(
        &self,
        told: v1::MarkCompactedRequest,
    ) -> impl Future<Output = Result<v1::MarkCompactedResponse, Status>> + Send;
}

/// State between events, and access to the local machine.
pub trait HookMemory: Sync {
    /// The user's turn, for hosts that do not number them.
    fn run(&self, session: &str) -> Option<String>;
    /// Starts a new turn.
    fn begin_run(&self, session: &str);
    /// Marks that the model needs a summary after a compaction.
    fn owe(&self, session: &str);
    /// Takes the mark.
    fn is_owed(&self, session: &str) -> bool;
    /// Keeps a text for the model until the host accepts one.
    fn keep(&self, session: &str, text: &str);
    /// Takes the kept texts.
    fn take_kept_texts(&self, session: &str) -> Option<String>;
    /// Records a pending call with the report that cancels it.
    fn begins(&self, cancellation: &v1::RecordRequest);
    /// Marks the pending call as answered.
    fn is_answered(&self);
    /// Records that the host's user is asked about a call, with its approval request.
    fn ask(&self, session: &str, call_id: &str, question: &str);
    /// Takes the approval request of a call.
    fn take_request(&self, session: &str, call_id: &str) -> Option<String>;
    /// Takes the approval requests that the user has not answered.
    fn take_unanswered_requests(&self, session: &str) -> Vec<String>;
    /// Records that the host's prompt asks about a call of a tool.
    fn at_prompt(&self, session: &str, tool: &str);
    /// Removes a finished call of the tool from the prompt.
    fn has_run(&self, session: &str, tool: &str);
    /// Takes the tools of calls that were at the prompt and have not run.
    fn left_at_prompt(&self, session: &str) -> Vec<String>;
    /// Ends the session; a needed summary stays needed.
    fn forget(&self, session: &str);
    /// The witness of a file; none without access, or if a read could not distinguish it from another state.
    fn witness(&self, file: &HostFile) -> Option<String>;
    /// A unique part of generated ids.
    fn stamp(&self) -> String;
}

/// Removes one call of the tool from the prompt.
pub fn leave(at_prompt: &mut Vec<String>, tool: &str) {
    if let Some(place) = at_prompt.iter().position(|waiting| waiting == tool) {
        at_prompt.swap_remove(place);
    }
}

/// Settings of an installed hook.
#[derive(Debug, Clone)]
pub struct HookSettings {
    /// Host.
    pub host: Host,
    /// Agent name; empty for none.
    pub agent: String,
    /// True when a permit also skips the host's prompt.
    pub grant: bool,
    /// True where the host reports no restart after a compaction.
    pub never_restarts: bool,
    /// True where a text before a tool reaches the model.
    pub hears_before: bool,
    /// True where the hook can open the host's own prompt.
    pub prompts: bool,
    /// Timeout of the host.
    pub patience: Duration,
}

/// The answer to an event.
///
/// # Errors
/// The server's: nothing was decided, or nothing stored.
pub async fn answer_event<P: HookServer, M: HookMemory>(
    plane: &P,
    memory: &M,
    installed: &HookSettings,
    mut seen: HookInput,
) -> Result<HostAnswer, Status> {
    if matches!(seen.event, HostEvent::Other) {
        return Ok(HostAnswer::Nothing);
    }
    let is_numbered = seen.run.is_some();
    let session = seen.session.clone();
    if !is_numbered {
        // A sub-agent works in the turn of the conversation that started it.
        seen.run = memory.run(seen.parent.as_ref().unwrap_or(&session));
    }
    let event = std::mem::replace(&mut seen.event, HostEvent::Other);
    let messages = Messages { seen: &seen, installed };
    match event {
        HostEvent::Before(call) => before(plane, memory, &messages, call).await,
        HostEvent::AtPrompt(tool) => {
            memory.at_prompt(&session, &tool);
            Ok(HostAnswer::Nothing)
        }
        HostEvent::After(call, came) => {
            memory.has_run(&session, &call.tool);
            let hint = after(plane, memory, &messages, call, came).await?;
            add_context(plane, memory, &session, hint).await
        }
        HostEvent::Prompted => {
            if !is_numbered {
                memory.begin_run(&session);
            }
            settle(plane, memory, &messages).await?;
            add_context(plane, memory, &session, None).await
        }
        HostEvent::TurnEnded => settle(plane, memory, &messages).await.map(|()| HostAnswer::Nothing),
        HostEvent::Ended => {
            settle(plane, memory, &messages).await?;
            memory.forget(&session);
            Ok(HostAnswer::Nothing)
        }
        HostEvent::Compacted { restarts } if restarts && !installed.never_restarts => Ok(HostAnswer::Nothing),
        HostEvent::Compacted { .. } => {
            if fetch_summary(plane, &session).await?.is_some() {
                memory.owe(&session);
            }
            Ok(HostAnswer::Nothing)
        }
        HostEvent::Restarted => Ok(fetch_summary(plane, &session).await?.map_or(HostAnswer::Nothing, HostAnswer::Tell)),
        HostEvent::Other => Ok(HostAnswer::Nothing),
    }
}

/// Evaluates a call; waits for an approval until the timeout, and waits out a short WAIT.
async fn before<P: HookServer, M: HookMemory>(
    plane: &P,
    memory: &M,
    messages: &Messages<'_>,
    mut call: HostCall,
) -> Result<HostAnswer, Status> {
    let stem = messages.stem(&call);
    call.id.get_or_insert_with(|| format!("{stem}{}", memory.stamp()));
    let id = call.id.as_deref().unwrap_or_default();
    memory.begins(&messages.report(id, None, CallResult::Cancelled { not_started: true }, false));
    let answer = evaluate_call(plane, memory, messages, &call).await;
    if !answer.as_ref().is_err_and(is_away) {
        memory.is_answered();
    }
    answer
}

async fn evaluate_call<P: HookServer, M: HookMemory>(
    plane: &P,
    memory: &M,
    messages: &Messages<'_>,
    call: &HostCall,
) -> Result<HostAnswer, Status> {
    let witness = call.file.as_ref().and_then(|file| memory.witness(file));
    let (clock, patience) = (Clock::System, messages.installed.patience);
    let began = clock.tick();
    // A prompt of the host's is not kept waiting.
    let (mut wait, mut away_since) = (if messages.installed.prompts { Duration::ZERO } else { SHORT }, None);
    loop {
        let left = patience.saturating_sub(clock.elapsed_since(began) + MARGIN);
        let verdict = match plane.evaluate(messages.question(call, witness.clone(), wait.min(left))).await {
            Ok(answer) => answer.verdict.ok_or_else(|| Status::internal("the server's answer holds no verdict"))?,
            // It was asked, and a person may be answering.
            Err(status) if wait == LONG && is_away(&status) => {
                let since = *away_since.get_or_insert_with(|| clock.tick());
                if clock.elapsed_since(since) > AWAY_MAX.min(left) {
                    return Err(status);
                }
                sleep(AWAY_STEP).await;
                continue;
            }
            Err(status) => return Err(status),
        };
        away_since = None;
        match verdict.decision() {
            v1::Decision::Allow => return run(plane, memory, messages, call, &verdict).await,
            v1::Decision::Ask if messages.installed.prompts && verdict.host_may_approve => {
                return Ok(ask(memory, messages, call, &verdict));
            }
            v1::Decision::Wait if wait.is_zero() => wait = SHORT,
            v1::Decision::Ask if !left.is_zero() => wait = LONG,
            decision if verdict.tool_result_json.is_empty() => {
                let told =
                    format!("{} was refused ({}); the server returned no reason", call.tool, decision.as_str_name());
                return Ok(HostAnswer::Refuse(told));
            }
            _ => {
                let (host, session) = (messages.installed.host, &messages.seen.session);
                return Ok(HostAnswer::Refuse(host.refusal(session, &call.tool, &verdict.tool_result_json)));
            }
        }
    }
}

async fn run<P: HookServer, M: HookMemory>(
    plane: &P,
    memory: &M,
    messages: &Messages<'_>,
    call: &HostCall,
    verdict: &v1::Verdict,
) -> Result<HostAnswer, Status> {
    let mended = verdict.permit.as_ref().map(|permit| permit.arguments_json.as_str()).filter(|json| !json.is_empty());
    let (session, hint) = (&messages.seen.session, Some(&verdict.next_context_hint).filter(|hint| !hint.is_empty()));
    let context = match messages.installed.hears_before {
        true => add_context(plane, memory, session, hint.cloned()).await?,
        false => {
            hint.iter().for_each(|hint| memory.keep(session, hint));
            HostAnswer::Nothing
        }
    };
    let context = if let HostAnswer::Tell(context) = context { Some(context) } else { None };
    Ok(HostAnswer::Run {
        grant: messages.installed.grant,
        context,
        arguments: mended.and_then(|json| serde_json::from_str(json).ok()).map(|mended| call.to_host_arguments(mended)),
    })
}

/// Opens the host's own prompt, and records that.
fn ask(memory: &impl HookMemory, messages: &Messages<'_>, call: &HostCall, verdict: &v1::Verdict) -> HostAnswer {
    let id = call.id.as_deref().unwrap_or_default();
    memory.ask(&messages.seen.session, id, &verdict.approval_id);
    HostAnswer::Ask(format!("callgate: the policy requires your approval of {}. Your answer is recorded.", call.tool))
}

/// The answer with a needed summary and kept texts.
async fn add_context<P: HookServer, M: HookMemory>(
    plane: &P,
    memory: &M,
    session: &str,
    hint: Option<String>,
) -> Result<HostAnswer, Status> {
    let owed = if memory.is_owed(session) { summary(plane, session).await? } else { None };
    let said: Vec<String> = owed.into_iter().chain(memory.take_kept_texts(session)).chain(hint).collect();
    Ok(if said.is_empty() { HostAnswer::Nothing } else { HostAnswer::Tell(truncate_text(&said.join("\n\n"))) })
}

/// Reports an outcome; returns the model's text.
async fn after<P: HookServer, M: HookMemory>(
    plane: &P,
    memory: &M,
    messages: &Messages<'_>,
    mut call: HostCall,
    came: CallResult,
) -> Result<Option<String>, Status> {
    if call.id.is_none() {
        // It is the one that is open with the same arguments.
        let stem = messages.stem(&call);
        let open = open(plane, messages).await?;
        call.id = open.into_iter().map(|(id, _)| id).find(|id| id.starts_with(&stem));
    }
    let Some(id) = call.id.clone() else { return Ok(None) };
    let session = &messages.seen.session;
    let asked = memory.take_request(session, &id);
    if let Some(question) = asked.as_ref().filter(|_| came == CallResult::Cancelled { not_started: true }) {
        return take_back(plane, session, question.clone()).await.map(|()| None);
    }
    let witness = call.file.as_ref().and_then(|file| memory.witness(file)).unwrap_or_default();
    let report = messages.report(&id, Some(&call), came, asked.is_some());
    match plane.record(v1::RecordRequest { witness_after: witness, ..report }).await {
        Ok(answer) => Ok(messages::hint(&answer)),
        Err(status) if is_settled(&status) => Ok(None),
        Err(status) => Err(status),
    }
}

/// Cancels calls whose outcomes will never be reported.
async fn settle<P: HookServer, M: HookMemory>(plane: &P, memory: &M, messages: &Messages<'_>) -> Result<(), Status> {
    for question in memory.take_unanswered_requests(&messages.seen.session) {
        take_back(plane, &messages.seen.session, question).await?;
    }
    // A call abandoned at the host's prompt was denied or ignored, and never ran.
    let mut at_prompt = memory.left_at_prompt(&messages.seen.session);
    for (id, tool) in open(plane, messages).await? {
        let place = at_prompt.iter().position(|waiting| *waiting == tool);
        let not_started = place.map(|place| at_prompt.swap_remove(place)).is_some();
        match plane.record(messages.report(&id, None, CallResult::Cancelled { not_started }, false)).await {
            Err(status) if !is_settled(&status) => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

/// Withdraws the approval request after the host's user denied or ignored it.
async fn take_back<P: HookServer>(plane: &P, session: &str, question: String) -> Result<(), Status> {
    match plane.withdraw(session, question).await {
        Err(status) if !is_settled(&status) => Err(status),
        _ => Ok(()),
    }
}

/// Ids and tools of the session's calls without an outcome.
async fn open<P: HookServer>(plane: &P, messages: &Messages<'_>) -> Result<Vec<(String, String)>, Status> {
    let ask = v1::GetSessionStateRequest {
        session_id: messages.seen.session.clone(),
        last_calls: 1,
        ..v1::GetSessionStateRequest::default()
    };
    let calls = match plane.session_state(ask).await {
        Ok(answer) => answer.state.unwrap_or_default().calls,
        Err(status) if is_unknown(&status) => Vec::new(),
        Err(status) => return Err(status),
    };
    Ok(calls.into_iter().filter(|call| call.state == OPEN).map(|call| (call.call_id, call.tool)).collect())
}

/// The summary to restore a context.
async fn fetch_summary<P: HookServer>(plane: &P, session: &str) -> Result<Option<String>, Status> {
    let told = v1::MarkCompactedRequest { session_id: session.to_owned(), summary_tokens: 0 };
    match plane.mark_compacted(told).await {
        Ok(answer) => Ok(answer.state.map(|state| truncate_text(&state.summary_for_model))),
        Err(status) if is_unknown(&status) => Ok(None),
        Err(status) => Err(status),
    }
}

async fn summary<P: HookServer>(plane: &P, session: &str) -> Result<Option<String>, Status> {
    let ask = v1::GetSessionStateRequest { session_id: session.to_owned(), ..v1::GetSessionStateRequest::default() };
    match plane.session_state(ask).await {
        Ok(answer) => Ok(answer.state.map(|state| state.summary_for_model)),
        Err(status) if is_unknown(&status) => Ok(None),
        Err(status) => Err(status),
    }
}
