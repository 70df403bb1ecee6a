//! Between a client and its server: every line passes as it came, but for calls of tools, which wait for their verdict.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    ProxyOptions,
    judge::{Batch, Waiting},
    lines::Out,
    outcomes,
    plane::Plane,
    seen::Seen,
};
use crate::{
    grpc::v1::{OutcomeStatus, ToolCall},
    mcp::{
        answer,
        call::Call,
        inventory::Inventory,
        message::{self, Id, Line, Message, TOOLS_CALL, TOOLS_LIST},
        outcome::{self, Outcome},
    },
};

/// Ids of calls that are remembered, so that one that is sent twice is judged twice.
const REMEMBERED_MAX: usize = 1_024;
/// Calls that asked for something first, or are tasks, of which the next message is awaited.
const PAUSED_MAX: usize = 1_024;

/// What both directions share.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) options: ProxyOptions,
    pub(super) plane: Arc<Plane>,
    /// Names this connection in ids of calls.
    pub(super) connection: String,
    /// None for a server without a name.
    pub(super) seen: Option<Seen>,
    pub(super) to_client: mpsc::Sender<Out>,
    pub(super) to_server: mpsc::Sender<Out>,
    pub(super) to_judge: mpsc::Sender<Work>,
    pub(super) state: Mutex<State>,
}

/// What waits for a verdict.
#[derive(Debug)]
pub(super) enum Work {
    Call(Box<Waiting>),
    Batch(Batch),
    /// No more follows.
    End,
}

/// What is known of the messages in between.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Requests that the server has not answered.
    pub(super) open: Vec<Open>,
    /// Calls that the server has not seen: their client calls them off here.
    pub(super) held: Vec<(Id, watch::Sender<bool>)>,
    /// Calls that asked for something first: the client sends them again with it.
    asking: VecDeque<Running>,
    /// Calls that go on as tasks, by their names.
    tasks: VecDeque<(String, Running)>,
    remembered: VecDeque<String>,
    count: u64,
    pub(super) inventory: Inventory,
}

/// A request that the server has not answered.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: Id,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Call(Running),
    List,
    Other,
}

/// A call that the server works on.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) asked: ToolCall,
    /// Nobody judged it, since the plane was out of reach.
    pub(super) is_unjudged: bool,
    /// For the model, with the result.
    pub(super) hint: String,
    pub(super) began: Instant,
}

impl Proxy {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line for the client.
    pub(super) async fn answer(&self, line: String) {
        let _ = self.to_client.send(Out::Line(format!("{line}\n").into_bytes())).await;
    }

    /// To the user, who sees it in the host's log.
    pub(super) fn say(&self, text: &str) {
        match &self.options.server_name {
            Some(name) => errln!("callgate: mcp-proxy {name}: {text}"),
            None => errln!("callgate: mcp-proxy: {text}"),
        }
    }

    /// A line of the client: it passes, or waits for a verdict.
    pub(super) async fn client_says(&self, line: Vec<u8>) {
        let text = String::from_utf8_lossy(&line).into_owned();
        match message::read(&text) {
            Line::Unreadable => self.refuse_unreadable("it is not one JSON value, or has a name twice").await,
            Line::One(message) if message.is(TOOLS_CALL) => match Call::read(&message) {
                Ok(call) => {
                    let waiting = self.waiting(call, message.raw.to_owned(), line);
                    let _ = self.to_judge.send(Work::Call(Box::new(waiting))).await;
                }
                Err(problem) => self.refuse(message.id.as_ref(), problem).await,
            },
            Line::Batch(messages) if messages.iter().any(|message| message.is(TOOLS_CALL)) => {
                let _ = self.to_judge.send(Work::Batch(self.batch(&messages, line))).await;
            }
            Line::One(message) => {
                if self.passes(&message) {
                    self.forward(line).await;
                }
            }
            Line::Batch(messages) => {
                for message in &messages {
                    self.passes(message);
                }
                self.forward(line).await;
            }
            Line::Noise => self.forward(line).await,
        }
    }

    pub(super) async fn forward(&self, line: Vec<u8>) {
        let _ = self.to_server.send(Out::Line(line)).await;
    }

    /// The answer to what nobody can judge, and which another reader might take for a call.
    pub(super) async fn refuse_unreadable(&self, problem: &str) {
        let text = format!("callgate refuses this line, which may be a call of a tool: {problem}");
        self.say(&text);
        self.answer(answer::unreadable(&text)).await;
    }

    pub(super) async fn refuse(&self, id: Option<&Id>, problem: &str) {
        match id {
            Some(id) => {
                let text = format!("callgate cannot judge this call: {problem}. It was not executed.");
                self.answer(answer::result(id, &answer::unjudged("invalid_call", &text, false), true)).await;
            }
            None => self.refuse_unreadable(problem).await,
        }
    }

    /// Takes note of a message that is no call; false for one that the server need not see.
    pub(super) fn passes(&self, message: &Message<'_>) -> bool {
        let mut state = self.state();
        if let Some(id) = message.cancels() {
            return !self.call_off(&mut state, &id);
        }
        if let (Some(id), Some(method)) = (&message.id, message.method.as_deref()) {
            let task = message.member("params").filter(|_| method == "tasks/result").and_then(outcomes::task);
            let kind = match method {
                TOOLS_LIST => Kind::List,
                _ => task.and_then(|task| state.take_task(&task)).map_or(Kind::Other, Kind::Call),
            };
            state.open.push(Open { id: id.clone(), kind });
        }
        true
    }

    /// True for a call that the server has not seen, and now will not.
    fn call_off(&self, state: &mut State, id: &Id) -> bool {
        if let Some(at) = state.held.iter().position(|(held, _)| held == id) {
            state.held.swap_remove(at).1.send_replace(true);
            return true;
        }
        if let Some(open) = state.open.iter().position(|open| open.id == *id).map(|at| state.open.swap_remove(at))
            && let Kind::Call(running) = open.kind
        {
            self.plane.report(outcomes::ended(&running, OutcomeStatus::Cancelled));
        }
        false
    }

    /// A line of the server, which passes; what comes of a call is reported, and what the plane has to say is added.
    pub(super) async fn server_says(&self, line: Vec<u8>) {
        let text = String::from_utf8_lossy(&line).into_owned();
        let noted = match message::read(&text) {
            Line::One(message) => self.settle(&message).filter(|hint| !hint.is_empty()).and_then(|hint| {
                let noted = answer::with_note(text.trim_end_matches(['\r', '\n']), &hint)?;
                Some(format!("{noted}\n").into_bytes())
            }),
            Line::Batch(messages) => {
                for message in &messages {
                    self.settle(message);
                }
                None
            }
            Line::Noise | Line::Unreadable => None,
        };
        let _ = self.to_client.send(Out::Line(noted.unwrap_or(line))).await;
    }

    /// Takes note of a response; gives what the plane has to say with it.
    fn settle(&self, message: &Message<'_>) -> Option<String> {
        let id = message.answers()?;
        let mut state = self.state();
        let at = state.open.iter().position(|open| open.id == *id)?;
        let running = match state.open.remove(at).kind {
            Kind::Call(running) => running,
            Kind::List => {
                drop(state);
                self.listed(message.member("result")?);
                return None;
            }
            Kind::Other => return None,
        };
        match outcome::read(message) {
            Outcome::Asks => state.pause_asking(running.clone()),
            Outcome::Task(name) => state.pause_task(name, running.clone()),
            outcome => self.plane.report(outcomes::report(&running, outcome)),
        }
        Some(running.hint)
    }

    /// Compares a list of tools with what was seen before.
    fn listed(&self, result: &str) {
        let mut inventory = self.known();
        let (drifts, is_news) = inventory.observe(result);
        let server = self.options.server_name.as_deref().unwrap_or_default();
        for drift in drifts {
            let consequence = if self.options.refuse_drift { "calls of it are refused" } else { "nobody has read it" };
            self.say(&format!("the tool {drift}; {consequence} until `callgate mcp approve {server}`"));
        }
        if let (Some(seen), true) = (&self.seen, is_news)
            && let Err(error) = seen.save(&inventory)
        {
            self.say(&format!("{error:#}"));
        }
        self.state().inventory = inventory;
    }

    /// What is known of the server's tools: a person may have approved them meanwhile.
    pub(super) fn known(&self) -> Inventory {
        let kept = self.seen.as_ref().and_then(|seen| seen.load().ok().flatten());
        kept.unwrap_or_else(|| self.state().inventory.clone())
    }

    /// After the end of the server: what was open is unknown, and its client waits in vain.
    pub(super) async fn gone(&self, why: &str) {
        let (open, held, tasks) = {
            let mut state = self.state();
            (std::mem::take(&mut state.open), std::mem::take(&mut state.held), std::mem::take(&mut state.tasks))
        };
        let calls = open.iter().filter_map(|open| match &open.kind {
            Kind::Call(running) => Some(running),
            Kind::List | Kind::Other => None,
        });
        for running in calls.chain(tasks.iter().map(|(_, running)| running)) {
            self.plane.report(outcomes::ended(running, OutcomeStatus::Unknown));
        }
        for (id, off) in &held {
            off.send_replace(true);
            self.answer(answer::gone(id, &format!("{why} The call was not executed."))).await;
        }
        for open in &open {
            let more = match open.kind {
                Kind::Call(_) => " The call may have taken effect: check that before you repeat it.",
                Kind::List | Kind::Other => "",
            };
            self.answer(answer::gone(&open.id, &format!("{why}{more}"))).await;
        }
    }
}

impl State {
    pub(super) fn new(inventory: Inventory) -> Self {
        Self { inventory, ..Self::default() }
    }

    /// The id of a call: the host's own, which its hooks know too, else one that no other has. What continues a call is
    /// that call; one that was sent before is another.
    pub(super) fn call_id(&mut self, call: &Call, tool: &str, connection: &str) -> String {
        let is_same = |running: &Running| running.asked.tool == tool && running.asked.arguments_json == call.arguments;
        if let Some(at) = self.asking.iter().position(|running| call.continues && is_same(running))
            && let Some(running) = self.asking.remove(at)
        {
            return running.asked.call_id;
        }
        self.count += 1;
        let count = self.count;
        let own = call.tool_use_id.as_deref().filter(|id| (1..=180).contains(&id.len()));
        let id = match own.filter(|id| !id.contains(char::is_control)) {
            Some(id) if self.remembered.iter().any(|known| known == id) => format!("{id}/{count}"),
            Some(id) => id.to_owned(),
            None => format!("{connection}/{count}"),
        };
        if self.remembered.len() == REMEMBERED_MAX {
            self.remembered.pop_front();
        }
        self.remembered.push_back(id.clone());
        id
    }

    fn pause_asking(&mut self, running: Running) {
        if self.asking.len() == PAUSED_MAX {
            self.asking.pop_front();
        }
        self.asking.push_back(running);
    }

    fn pause_task(&mut self, name: String, running: Running) {
        if self.tasks.len() == PAUSED_MAX {
            self.tasks.pop_front();
        }
        self.tasks.push_back((name, running));
    }

    fn take_task(&mut self, name: &str) -> Option<Running> {
        let at = self.tasks.iter().position(|(known, _)| known == name)?;
        self.tasks.remove(at).map(|(_, running)| running)
    }

    /// True while the server works on a call.
    pub(super) fn works_on(&self, call_id: &str) -> bool {
        let is_it = |running: &Running| running.asked.call_id == call_id;
        let open = self.open.iter().any(|open| matches!(&open.kind, Kind::Call(running) if is_it(running)));
        open || self.tasks.iter().any(|(_, running)| is_it(running))
    }
}
