//! Between clients and their server, by whatever way they speak: what is known of the messages in between.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::watch, time::Instant};

use super::{ProxyOptions, outcomes, plane::Plane, seen::Seen};
use crate::mcp::{
    answer,
    call::Call,
    inventory::Inventory,
    message::{self, Id, Line, Message, TOOLS_LIST},
    outcome::{self, Outcome},
};
use callgate_proto::v1::{OutcomeStatus, RecordRequest, ToolCall};

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
    pub(super) state: Mutex<State>,
}

/// A request by its id, and by who gave it: clients without a session of the protocol each count for themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// 0 for the one client of a proxy.
    pub(super) client: u64,
    pub(super) id: Id,
}

/// What is known of the messages in between.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Requests that the server has not answered.
    pub(super) open: Vec<Open>,
    /// Calls that the server has not seen: their client calls them off here.
    pub(super) held: Vec<(Key, watch::Sender<bool>)>,
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
    pub(super) key: Key,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Call(Box<Running>),
    List,
    Other,
}

/// A call that the server works on.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) asked: ToolCall,
    /// Nobody judged it, since the plane was out of reach.
    pub(super) is_unjudged: bool,
    /// Its server was sent the idempotency key, as an argument.
    pub(super) key_sent: bool,
    /// For the model, with the result.
    pub(super) hint: String,
    pub(super) began: Instant,
}

impl Proxy {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn say(&self, text: &str) {
        self.options.say(text);
    }

    /// The answer to what nobody can judge, and which another reader might take for a call.
    pub(super) fn unreadable(&self, problem: &str) -> String {
        let text = format!("callgate refuses this message, which may be a call of a tool: {problem}");
        self.say(&text);
        answer::unreadable(&text)
    }

    /// The answer to a call that nobody can judge.
    pub(super) fn unjudgeable(&self, id: Option<&Id>, problem: &str) -> String {
        match id {
            Some(id) => {
                let text = format!("callgate cannot judge this call: {problem}. It was not executed.");
                answer::result(id, &answer::unjudged("invalid_call", &text, false), true)
            }
            None => self.unreadable(problem),
        }
    }

    /// Takes note of a message that is no call; false for one that the server need not see.
    pub(super) fn passes(&self, client: u64, message: &Message<'_>) -> bool {
        if let Some(id) = message.cancels() {
            return !self.call_off(&Key { client, id });
        }
        let mut state = self.state();
        if let (Some(id), Some(method)) = (&message.id, message.method.as_deref()) {
            let task = message.member("params").filter(|_| method == "tasks/result").and_then(outcomes::task);
            let kind = match method {
                TOOLS_LIST => Kind::List,
                _ => task
                    .and_then(|task| state.take_task(&task))
                    .map_or(Kind::Other, |running| Kind::Call(Box::new(running))),
            };
            state.open.push(Open { key: Key { client, id: id.clone() }, kind });
        }
        true
    }

    /// True for a call that the server has not seen, and now will not.
    pub(super) fn call_off(&self, key: &Key) -> bool {
        let mut state = self.state();
        if let Some(at) = state.held.iter().position(|(held, _)| held == key) {
            state.held.swap_remove(at).1.send_replace(true);
            return true;
        }
        if let Some(Kind::Call(running)) = state.take(key) {
            self.plane.report(outcomes::ended(&running, OutcomeStatus::Cancelled));
        }
        false
    }

    /// What the server says: what comes of a call is reported, and what the plane has to say is added. None for what
    /// passes as it came.
    pub(super) fn heard(&self, client: u64, text: &str) -> Option<String> {
        match message::read(text) {
            Line::One(message) => {
                let hint = self.settle(client, &message).filter(|hint| !hint.is_empty())?;
                answer::with_note(text.trim_end_matches(['\r', '\n']), &hint)
            }
            Line::Batch(messages) => {
                for message in &messages {
                    self.settle(client, message);
                }
                None
            }
            Line::Noise | Line::Unreadable => None,
        }
    }

    /// Takes note of a response; gives what the plane has to say with it.
    fn settle(&self, client: u64, message: &Message<'_>) -> Option<String> {
        let id = message.answers()?.clone();
        let mut state = self.state();
        let running = match state.take(&Key { client, id })? {
            Kind::Call(running) => running,
            Kind::List => {
                drop(state);
                self.listed(message.member("result")?);
                return None;
            }
            Kind::Other => return None,
        };
        match outcome::read(message) {
            Outcome::Asks => state.pause_asking((*running).clone()),
            Outcome::Task(name) => state.pause_task(name, (*running).clone()),
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
            let consequence = if self.options.refuse_drift { "calls of it are refused" } else { "it is not approved" };
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

    /// No server will answer any more: what was open is unknown. Gives what to answer to each client, which waits in
    /// vain.
    pub(super) fn gone(&self, why: &str) -> Vec<String> {
        let (open, held, tasks) = {
            let mut state = self.state();
            (std::mem::take(&mut state.open), std::mem::take(&mut state.held), std::mem::take(&mut state.tasks))
        };
        for (_, running) in &tasks {
            self.plane.report(outcomes::ended(running, OutcomeStatus::Unknown));
        }
        let held = held.iter().map(|(key, off)| {
            off.send_replace(true);
            answer::gone(&key.id, &format!("{why} The call was not executed."))
        });
        held.chain(open.into_iter().map(|open| self.lost(open, why))).collect()
    }

    /// A request that its server has not seen. Gives what to answer to its client.
    pub(super) fn unseen(&self, open: Open, why: &str) -> String {
        let Kind::Call(running) = open.kind else { return answer::gone(&open.key.id, why) };
        let cancelled = outcomes::ended(&running, OutcomeStatus::Cancelled);
        self.plane.report(RecordRequest { not_started: true, ..cancelled });
        answer::gone(&open.key.id, &format!("{why} The call was not executed."))
    }

    /// A request that was answered by an HTTP status alone. Gives what to answer to a client that has not seen it.
    pub(super) fn failed(&self, open: Open, status: u16) -> String {
        let why = format!("The MCP server answered with the HTTP status {status}.");
        if let Kind::Call(running) = &open.kind {
            let outcome = Outcome::Error { message: why.clone(), code: None };
            let mut report = outcomes::report(running, outcome);
            report.error.get_or_insert_default().http_status = Some(status.into());
            self.plane.report(report);
        }
        answer::gone(&open.key.id, &why)
    }

    /// A request that is not answered any more: what it was is unknown. Gives what to answer to its client.
    pub(super) fn lost(&self, open: Open, why: &str) -> String {
        let more = match &open.kind {
            Kind::Call(running) => {
                self.plane.report(outcomes::ended(running, OutcomeStatus::Unknown));
                " The call may have taken effect: check that before you repeat it."
            }
            Kind::List | Kind::Other => "",
        };
        answer::gone(&open.key.id, &format!("{why}{more}"))
    }
}

impl State {
    pub(super) fn new(inventory: Inventory) -> Self {
        Self { inventory, ..Self::default() }
    }

    /// What a request is that the server works on; it is over for it.
    pub(super) fn take(&mut self, key: &Key) -> Option<Kind> {
        let at = self.open.iter().position(|open| open.key == *key)?;
        Some(self.open.remove(at).kind)
    }

    pub(super) fn is_open(&self, key: &Key) -> bool {
        self.open.iter().any(|open| open.key == *key)
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
