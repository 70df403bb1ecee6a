//! Shared state of a proxy: open requests and calls between clients and their server, for any transport.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::watch, time::Instant};

use super::{ProxyOptions, inventories::InventoryFile, outcomes, plane::ServerConnection};
use crate::mcp::{
    answer,
    call::ToolsCall,
    inventory::Inventory,
    message::{self, Id, LineKind, Message, TOOLS_LIST},
    outcome::{self, ResponseOutcome},
};
use callgate_proto::v1::{OutcomeStatus, RecordRequest, ToolCall};

/// Maximum number of remembered call ids, to detect repeated ones.
const REMEMBERED_MAX: usize = 1_024;
/// Maximum number of paused calls: tasks, and those that asked for input.
const PAUSED_MAX: usize = 1_024;

/// State shared by both directions.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) options: ProxyOptions,
    pub(super) plane: Arc<ServerConnection>,
    /// Unique prefix of call ids on this connection.
    pub(super) connection: String,
    /// Inventory file; none for a server without a name.
    pub(super) seen: Option<InventoryFile>,
    pub(super) state: Mutex<MessageState>,
}

/// Request key: id and client. Each client without an MCP session has its own ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestKey {
    /// Client number; 0 for a proxy's only client.
    pub(super) client: u64,
    pub(super) id: Id,
}

/// State of messages.
#[derive(Debug, Default)]
pub(super) struct MessageState {
    /// Requests without a response.
    pub(super) open: Vec<OpenRequest>,
    /// Held calls, which the server never received; their clients cancel them here.
    pub(super) held: Vec<(RequestKey, watch::Sender<bool>)>,
    /// Calls that asked for input, and will be sent again with it.
    asking: VecDeque<RunningCall>,
    /// Tasks by id.
    tasks: VecDeque<(String, RunningCall)>,
    remembered: VecDeque<String>,
    count: u64,
    pub(super) inventory: Inventory,
}

/// A request without a response.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) key: RequestKey,
    pub(super) kind: RequestKind,
}

#[derive(Debug)]
pub(super) enum RequestKind {
    Call(Box<RunningCall>),
    List,
    Other,
}

/// A call in execution.
#[derive(Debug, Clone)]
pub(super) struct RunningCall {
    pub(super) asked: ToolCall,
    /// True if it was not judged, because the server was unreachable.
    pub(super) is_unjudged: bool,
    /// True if its server received the idempotency key, as an argument.
    pub(super) key_sent: bool,
    /// Hint for the model, added to the result.
    pub(super) hint: String,
    pub(super) began: Instant,
}

impl Proxy {
    pub(super) fn state(&self) -> MutexGuard<'_, MessageState> {
        self.state.lock()
    }

    pub(super) fn print_line(&self, text: &str) {
        self.options.print_line(text);
    }

    /// The response to an invalid message that may be a call for another parser.
    pub(super) fn unreadable(&self, problem: &str) -> String {
        let text = format!("callgate refuses this message, which may be a call of a tool: {problem}");
        self.print_line(&text);
        answer::unreadable(&text)
    }

    /// The response to a call that cannot be judged.
    pub(super) fn unjudgeable(&self, id: Option<&Id>, problem: &str) -> String {
        match id {
            Some(id) => {
                let text = format!("callgate cannot judge this call: {problem}. It was not executed.");
                answer::result(id, &answer::render_unjudged("invalid_call", &text, false), true)
            }
            None => self.unreadable(problem),
        }
    }

    /// Handles a message that is no call; false if the server need not receive it.
    pub(super) fn passes(&self, client: u64, message: &Message<'_>) -> bool {
        if let Some(id) = message.cancels() {
            return !self.call_off(&RequestKey { client, id });
        }
        let mut state = self.state();
        if let (Some(id), Some(method)) = (&message.id, message.method.as_deref()) {
            let task = message.member("params").filter(|_| method == "tasks/result").and_then(outcomes::task);
            let kind = match method {
                TOOLS_LIST => RequestKind::List,
                _ => task
                    .and_then(|task| state.take_task(&task))
                    .map_or(RequestKind::Other, |running| RequestKind::Call(Box::new(running))),
            };
            state.open.push(OpenRequest { key: RequestKey { client, id: id.clone() }, kind });
        }
        true
    }

    /// Cancels a held call; false for others.
    pub(super) fn call_off(&self, key: &RequestKey) -> bool {
        let mut state = self.state();
        if let Some(at) = state.held.iter().position(|(held, _)| held == key) {
            state.held.swap_remove(at).1.send_replace(true);
            return true;
        }
        if let Some(RequestKind::Call(running)) = state.take(key) {
            self.plane.report(outcomes::report_without_response(&running, OutcomeStatus::Cancelled));
        }
        false
    }

    /// Handles a server's message: reports outcomes and adds hints. None if unchanged.
    pub(super) fn handle_server_message(&self, client: u64, text: &str) -> Option<String> {
        match message::read(text) {
            LineKind::One(message) => {
                let hint = self.settle(client, &message).filter(|hint| !hint.is_empty())?;
                answer::with_note(text.trim_end_matches(['\r', '\n']), &hint)
            }
            LineKind::Batch(messages) => {
                for message in &messages {
                    self.settle(client, message);
                }
                None
            }
            LineKind::Noise | LineKind::Unreadable => None,
        }
    }

    /// Handles a response; returns a hint to add.
    fn settle(&self, client: u64, message: &Message<'_>) -> Option<String> {
        let id = message.answers()?.clone();
        let mut state = self.state();
        let running = match state.take(&RequestKey { client, id })? {
            RequestKind::Call(running) => running,
            RequestKind::List => {
                drop(state);
                self.compare_tool_list(message.member("result")?);
                return None;
            }
            RequestKind::Other => return None,
        };
        match outcome::read(message) {
            ResponseOutcome::Asks => state.pause_asking((*running).clone()),
            ResponseOutcome::Task(name) => state.pause_task(name, (*running).clone()),
            outcome => self.plane.report(outcomes::report(&running, outcome)),
        }
        Some(running.hint)
    }

    /// Compares a tool list with the inventory, and reports it.
    fn compare_tool_list(&self, result: &str) {
        let Ok(page) = serde_json::from_str(result) else { return };
        let mut inventory = self.load_inventory();
        let (drifts, is_news) = inventory.observe(&page);
        let server = self.options.server_name.as_deref().unwrap_or_default();
        for drift in drifts {
            let consequence = if self.options.refuse_drift { "calls of it are refused" } else { "it is not approved" };
            self.print_line(&format!("the tool {drift}; {consequence} until `callgate mcp approve {server}`"));
        }
        if let (Some(seen), true) = (&self.seen, is_news)
            && let Err(error) = seen.save(&inventory)
        {
            self.print_line(&format!("{error:#}"));
        }
        self.state().inventory = inventory;
        // Tools of two servers without names would be versions of one.
        if let Some(server) = self.options.server_name.clone() {
            self.plane.report_tools(server, page);
        }
    }

    /// The current inventory, reloaded because a person may have approved it.
    pub(super) fn load_inventory(&self) -> Inventory {
        let kept = self.seen.as_ref().and_then(|seen| seen.load().ok().flatten());
        kept.unwrap_or_else(|| self.state().inventory.clone())
    }

    /// Handles the loss of the server: open calls are unknown. Returns the responses for waiting clients.
    pub(super) fn fail_open_requests(&self, why: &str) -> Vec<String> {
        let (open, held, tasks) = {
            let mut state = self.state();
            (std::mem::take(&mut state.open), std::mem::take(&mut state.held), std::mem::take(&mut state.tasks))
        };
        for (_, running) in &tasks {
            self.plane.report(outcomes::report_without_response(running, OutcomeStatus::Unknown));
        }
        let held = held.iter().map(|(key, off)| {
            off.send_replace(true);
            answer::render_server_lost(&key.id, &format!("{why} The call was not executed."))
        });
        held.chain(open.into_iter().map(|open| self.lose_request(open, why))).collect()
    }

    /// Handles a request that its server never received; returns the client's response.
    pub(super) fn unseen(&self, open: OpenRequest, why: &str) -> String {
        let RequestKind::Call(running) = open.kind else { return answer::render_server_lost(&open.key.id, why) };
        let cancelled = outcomes::report_without_response(&running, OutcomeStatus::Cancelled);
        self.plane.report(RecordRequest { not_started: true, ..cancelled });
        answer::render_server_lost(&open.key.id, &format!("{why} The call was not executed."))
    }

    /// Handles a response that was only an HTTP status; returns the client's response.
    pub(super) fn fail_request(&self, open: OpenRequest, status: u16) -> String {
        let why = format!("The MCP server answered with the HTTP status {status}.");
        if let RequestKind::Call(running) = &open.kind {
            let outcome = ResponseOutcome::Error { message: why.clone(), code: None };
            let mut report = outcomes::report(running, outcome);
            report.error.get_or_insert_default().http_status = Some(status.into());
            self.plane.report(report);
        }
        answer::render_server_lost(&open.key.id, &why)
    }

    /// Handles a lost request, whose outcome is unknown; returns the client's response.
    pub(super) fn lose_request(&self, open: OpenRequest, why: &str) -> String {
        let more = match &open.kind {
            RequestKind::Call(running) => {
                self.plane.report(outcomes::report_without_response(running, OutcomeStatus::Unknown));
                " The call may have taken effect: check that before you repeat it."
            }
            RequestKind::List | RequestKind::Other => "",
        };
        answer::render_server_lost(&open.key.id, &format!("{why}{more}"))
    }
}

impl MessageState {
    pub(super) fn new(inventory: Inventory) -> Self {
        Self { inventory, ..Self::default() }
    }

    /// Takes a request with its kind.
    pub(super) fn take(&mut self, key: &RequestKey) -> Option<RequestKind> {
        let at = self.open.iter().position(|open| open.key == *key)?;
        Some(self.open.remove(at).kind)
    }

    pub(super) fn is_open(&self, key: &RequestKey) -> bool {
        self.open.iter().any(|open| open.key == *key)
    }

    /// The id of a call: the host's own, shared with its hooks, otherwise a new one. A continued call keeps its id; a
    /// repeated one gets another.
    pub(super) fn call_id(&mut self, call: &ToolsCall, tool: &str, connection: &str) -> String {
        let is_same =
            |running: &RunningCall| running.asked.tool == tool && running.asked.arguments_json == call.arguments;
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

    fn pause_asking(&mut self, running: RunningCall) {
        if self.asking.len() == PAUSED_MAX {
            self.asking.pop_front();
        }
        self.asking.push_back(running);
    }

    fn pause_task(&mut self, name: String, running: RunningCall) {
        if self.tasks.len() == PAUSED_MAX {
            self.tasks.pop_front();
        }
        self.tasks.push_back((name, running));
    }

    fn take_task(&mut self, name: &str) -> Option<RunningCall> {
        let at = self.tasks.iter().position(|(known, _)| known == name)?;
        self.tasks.remove(at).map(|(_, running)| running)
    }

    /// True while the call is in execution.
    pub(super) fn works_on(&self, call_id: &str) -> bool {
        let is_it = |running: &RunningCall| running.asked.call_id == call_id;
        let open = self.open.iter().any(|open| matches!(&open.kind, RequestKind::Call(running) if is_it(running)));
        open || self.tasks.iter().any(|(_, running)| is_it(running))
    }
}
