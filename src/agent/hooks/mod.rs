//! What a host's event asks of a plane, and what the host is answered. The command on an agent's machine asks a server
//! (`src/agent/hook`), and the server's own route asks itself (`route.rs`): both by this one way.

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
use crate::hosts::{Answer, Call, Came, Event, File, Host, Seen, cut, refusal};
use callgate_net::clock::Clock;
use callgate_proto::v1;

/// A wait that is not worth a word to the model: it is waited out.
const SHORT: Duration = Duration::from_secs(2);
/// The longest that one request may wait for a person.
const LONG: Duration = Duration::from_secs(50);
/// What is left of a hook's time for the last answer.
const MARGIN: Duration = Duration::from_secs(2);
/// While a person is waited for, how often a server that is away is looked for, and how long.
const AWAY_STEP: Duration = Duration::from_secs(1);
const AWAY_MAX: Duration = Duration::from_secs(30);
/// A call that has no outcome yet.
const OPEN: i32 = v1::CallState::InFlight as i32;

/// Whom a hook asks.
pub trait Plane: Sync {
    /// May this call run?
    fn evaluate(&self, ask: v1::EvaluateRequest) -> impl Future<Output = Result<v1::EvaluateResponse, Status>> + Send;
    /// What came of it.
    fn record(&self, report: v1::RecordRequest) -> impl Future<Output = Result<v1::RecordResponse, Status>> + Send;
    /// What a session has open.
    fn session_state(
        &self,
        ask: v1::GetSessionStateRequest,
    ) -> impl Future<Output = Result<v1::GetSessionStateResponse, Status>> + Send;
    /// A question is taken back, in the name of its session.
    fn withdraw(&self, session: &str, approval_id: String) -> impl Future<Output = Result<(), Status>> + Send;
    /// Its context was compacted.
    fn mark_compacted(
        &self,
        told: v1::MarkCompactedRequest,
    ) -> impl Future<Output = Result<v1::MarkCompactedResponse, Status>> + Send;
}

/// What a hook remembers between two events, and knows of its machine.
pub trait Memory: Sync {
    /// The user's turn, where the host does not number them.
    fn run(&self, session: &str) -> Option<String>;
    /// A new one begins.
    fn begin_run(&self, session: &str);
    /// The model is owed the summary of a session whose context was compacted.
    fn owe(&self, session: &str);
    /// True once for what is owed.
    fn is_owed(&self, session: &str) -> bool;
    /// A text for the model has to wait until the host hears one.
    fn keep(&self, session: &str, text: &str);
    /// What was kept, once.
    fn kept(&self, session: &str) -> Option<String>;
    /// A call is about to be asked about: by this report it is called off where no answer comes.
    fn begins(&self, cancellation: &v1::RecordRequest);
    /// The answer has come.
    fn is_answered(&self);
    /// The host's user is asked about a call, by this question.
    fn ask(&self, session: &str, call_id: &str, question: &str);
    /// The question about a call that its host's user was asked, once.
    fn asked(&self, session: &str, call_id: &str) -> Option<String>;
    /// The questions that nobody has answered at the host's prompt, once.
    fn unanswered(&self, session: &str) -> Vec<String>;
    /// The host's own prompt asks its user about a call of a tool.
    fn at_prompt(&self, session: &str, tool: &str);
    /// A call of the tool has ended: it was not at the prompt any more.
    fn has_run(&self, session: &str, tool: &str);
    /// The tools whose calls were at the prompt and did not run since, once.
    fn left_at_prompt(&self, session: &str) -> Vec<String>;
    /// The session is over; what is owed stays owed.
    fn forget(&self, session: &str);
    /// The state of a file, in a few words; none where nobody can look, or a read could not tell it from another.
    fn witness(&self, file: &File) -> Option<String>;
    /// What makes an id that the host does not give.
    fn stamp(&self) -> String;
}

/// Takes one call of the tool away from the prompt.
pub fn leave(at_prompt: &mut Vec<String>, tool: &str) {
    if let Some(place) = at_prompt.iter().position(|waiting| waiting == tool) {
        at_prompt.swap_remove(place);
    }
}

/// How a hook is installed.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Where it is one.
    pub host: Host,
    /// The agent's name; empty for none.
    pub agent: String,
    /// The plane's permission is the host's.
    pub grant: bool,
    /// True where the host does not tell that a session starts anew after a compaction.
    pub never_restarts: bool,
    /// True where what is said before a tool reaches the model.
    pub hears_before: bool,
    /// True where the host's user can be asked by the host's own prompt.
    pub prompts: bool,
    /// How long the host waits for an answer, at most.
    pub patience: Duration,
}

/// What the host is answered to this event.
///
/// # Errors
/// The plane's: nothing was decided, or nothing stored.
pub async fn answered<P: Plane, M: Memory>(
    plane: &P,
    memory: &M,
    installed: &Installed,
    mut seen: Seen,
) -> Result<Answer, Status> {
    if matches!(seen.event, Event::Other) {
        return Ok(Answer::Nothing);
    }
    let is_numbered = seen.run.is_some();
    let session = seen.session.clone();
    if !is_numbered {
        // A sub-agent works in the turn of the conversation that started it.
        seen.run = memory.run(seen.parent.as_ref().unwrap_or(&session));
    }
    let event = std::mem::replace(&mut seen.event, Event::Other);
    let messages = Messages { seen: &seen, installed };
    match event {
        Event::Before(call) => before(plane, memory, &messages, call).await,
        Event::AtPrompt(tool) => {
            memory.at_prompt(&session, &tool);
            Ok(Answer::Nothing)
        }
        Event::After(call, came) => {
            memory.has_run(&session, &call.tool);
            let hint = after(plane, memory, &messages, call, came).await?;
            told(plane, memory, &session, hint).await
        }
        Event::Prompted => {
            if !is_numbered {
                memory.begin_run(&session);
            }
            settle(plane, memory, &messages).await?;
            told(plane, memory, &session, None).await
        }
        Event::TurnEnded => settle(plane, memory, &messages).await.map(|()| Answer::Nothing),
        Event::Ended => {
            settle(plane, memory, &messages).await?;
            memory.forget(&session);
            Ok(Answer::Nothing)
        }
        Event::Compacted { restarts } if restarts && !installed.never_restarts => Ok(Answer::Nothing),
        Event::Compacted { .. } => {
            if compacted(plane, &session).await?.is_some() {
                memory.owe(&session);
            }
            Ok(Answer::Nothing)
        }
        Event::Restarted => Ok(compacted(plane, &session).await?.map_or(Answer::Nothing, Answer::Tell)),
        Event::Other => Ok(Answer::Nothing),
    }
}

/// May it run? A person is waited for until the hook's time is over; a short pause is waited out.
async fn before<P: Plane, M: Memory>(
    plane: &P,
    memory: &M,
    messages: &Messages<'_>,
    mut call: Call,
) -> Result<Answer, Status> {
    let stem = messages.stem(&call);
    call.id.get_or_insert_with(|| format!("{stem}{}", memory.stamp()));
    let id = call.id.as_deref().unwrap_or_default();
    memory.begins(&messages.report(id, None, Came::Cancelled { not_started: true }, false));
    let answer = asked(plane, memory, messages, &call).await;
    if !answer.as_ref().is_err_and(is_away) {
        memory.is_answered();
    }
    answer
}

async fn asked<P: Plane, M: Memory>(
    plane: &P,
    memory: &M,
    messages: &Messages<'_>,
    call: &Call,
) -> Result<Answer, Status> {
    let witness = call.file.as_ref().and_then(|file| memory.witness(file));
    let (clock, patience) = (Clock::System, messages.installed.patience);
    let began = clock.tick();
    // A prompt of the host's is not kept waiting.
    let (mut wait, mut away_since) = (if messages.installed.prompts { Duration::ZERO } else { SHORT }, None);
    loop {
        let left = patience.saturating_sub(clock.elapsed(began) + MARGIN);
        let verdict = match plane.evaluate(messages.question(call, witness.clone(), wait.min(left))).await {
            Ok(answer) => answer.verdict.ok_or_else(|| Status::internal("the server's answer holds no verdict"))?,
            // It was asked, and a person may be answering.
            Err(status) if wait == LONG && is_away(&status) => {
                let since = *away_since.get_or_insert_with(|| clock.tick());
                if clock.elapsed(since) > AWAY_MAX.min(left) {
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
                return Ok(Answer::Refuse(told));
            }
            _ => return Ok(Answer::Refuse(refusal(&verdict.tool_result_json))),
        }
    }
}

async fn run<P: Plane, M: Memory>(
    plane: &P,
    memory: &M,
    messages: &Messages<'_>,
    call: &Call,
    verdict: &v1::Verdict,
) -> Result<Answer, Status> {
    let mended = verdict.permit.as_ref().map(|permit| permit.arguments_json.as_str()).filter(|json| !json.is_empty());
    let (session, hint) = (&messages.seen.session, Some(&verdict.next_context_hint).filter(|hint| !hint.is_empty()));
    let context = match messages.installed.hears_before {
        true => told(plane, memory, session, hint.cloned()).await?,
        false => {
            hint.iter().for_each(|hint| memory.keep(session, hint));
            Answer::Nothing
        }
    };
    let context = if let Answer::Tell(context) = context { Some(context) } else { None };
    Ok(Answer::Run {
        grant: messages.installed.grant,
        context,
        arguments: mended.and_then(|json| serde_json::from_str(json).ok()).map(|mended| call.mended(mended)),
    })
}

/// The host's own prompt, and that it was opened.
fn ask(memory: &impl Memory, messages: &Messages<'_>, call: &Call, verdict: &v1::Verdict) -> Answer {
    let id = call.id.as_deref().unwrap_or_default();
    memory.ask(&messages.seen.session, id, &verdict.approval_id);
    Answer::Ask(format!("callgate: the policy requires your approval of {}. Your answer is recorded.", call.tool))
}

/// What is to be said, with the summary that the model is owed, and what could not be said before.
async fn told<P: Plane, M: Memory>(
    plane: &P,
    memory: &M,
    session: &str,
    hint: Option<String>,
) -> Result<Answer, Status> {
    let owed = if memory.is_owed(session) { summary(plane, session).await? } else { None };
    let said: Vec<String> = owed.into_iter().chain(memory.kept(session)).chain(hint).collect();
    Ok(if said.is_empty() { Answer::Nothing } else { Answer::Tell(cut(&said.join("\n\n"))) })
}

/// What came of it, and what the model is to be told.
async fn after<P: Plane, M: Memory>(
    plane: &P,
    memory: &M,
    messages: &Messages<'_>,
    mut call: Call,
    came: Came,
) -> Result<Option<String>, Status> {
    if call.id.is_none() {
        // It is the one that is open with the same arguments.
        let stem = messages.stem(&call);
        let open = open(plane, messages).await?;
        call.id = open.into_iter().map(|(id, _)| id).find(|id| id.starts_with(&stem));
    }
    let Some(id) = call.id.clone() else { return Ok(None) };
    let session = &messages.seen.session;
    let asked = memory.asked(session, &id);
    if let Some(question) = asked.as_ref().filter(|_| came == Came::Cancelled { not_started: true }) {
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

/// Calls that nobody will report on any more are called off.
async fn settle<P: Plane, M: Memory>(plane: &P, memory: &M, messages: &Messages<'_>) -> Result<(), Status> {
    for question in memory.unanswered(&messages.seen.session) {
        take_back(plane, &messages.seen.session, question).await?;
    }
    // Who left a call at the host's prompt said no to it, or nothing: it never ran.
    let mut at_prompt = memory.left_at_prompt(&messages.seen.session);
    for (id, tool) in open(plane, messages).await? {
        let place = at_prompt.iter().position(|waiting| *waiting == tool);
        let not_started = place.map(|place| at_prompt.swap_remove(place)).is_some();
        match plane.record(messages.report(&id, None, Came::Cancelled { not_started }, false)).await {
            Err(status) if !is_settled(&status) => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

/// The host's user has said no, or nothing: nobody else is asked any more.
async fn take_back<P: Plane>(plane: &P, session: &str, question: String) -> Result<(), Status> {
    match plane.withdraw(session, question).await {
        Err(status) if !is_settled(&status) => Err(status),
        _ => Ok(()),
    }
}

/// The ids and tools of the session's calls without an outcome.
async fn open<P: Plane>(plane: &P, messages: &Messages<'_>) -> Result<Vec<(String, String)>, Status> {
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

/// The text to put back into a context.
async fn compacted<P: Plane>(plane: &P, session: &str) -> Result<Option<String>, Status> {
    let told = v1::MarkCompactedRequest { session_id: session.to_owned(), summary_tokens: 0 };
    match plane.mark_compacted(told).await {
        Ok(answer) => Ok(answer.state.map(|state| cut(&state.summary_for_model))),
        Err(status) if is_unknown(&status) => Ok(None),
        Err(status) => Err(status),
    }
}

async fn summary<P: Plane>(plane: &P, session: &str) -> Result<Option<String>, Status> {
    let ask = v1::GetSessionStateRequest { session_id: session.to_owned(), ..v1::GetSessionStateRequest::default() };
    match plane.session_state(ask).await {
        Ok(answer) => Ok(answer.state.map(|state| state.summary_for_model)),
        Err(status) if is_unknown(&status) => Ok(None),
        Err(status) => Err(status),
    }
}
