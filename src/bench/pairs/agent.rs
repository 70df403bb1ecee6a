//! Simulated agents: sessions, their calls, and the messages of each call.

use std::collections::VecDeque;

use uuid::Uuid;

use super::load::{LoadShape, Mix, falls_on};
use callgate_proto::v1::{Caller, EvaluateRequest, OutcomeStatus, RecordRequest, ToolCall, ToolError, Usage};

/// Tool of all calls except declared writes.
pub(super) const TOOL: &str = "search_direct_flight";
/// Declared write.
pub(super) const WRITE: &str = "book_flight";

/// A concurrent agent, which calls in its sessions round-robin.
#[derive(Debug)]
pub(super) struct Agent {
    place: usize,
    sessions: VecDeque<Session>,
    /// Number of calls.
    n: u64,
    /// Sessions that have not made their warm-up calls.
    young: usize,
}

#[derive(Debug)]
struct Session {
    caller: Caller,
    made: u32,
    ends_at: Option<u32>,
    is_young: bool,
    /// Arguments of its last call, and their number: a repetition gives the same result.
    last: (String, u64),
}

/// One call: its request, and the report if it may run.
#[derive(Debug)]
pub(super) struct PairRequest {
    pub(super) question: EvaluateRequest,
    pub(super) report: RecordRequest,
}

impl Agent {
    /// The agent with index `place` of those of `load`.
    pub(super) fn new(load: &LoadShape, place: usize) -> Self {
        let count = (load.sessions / load.workers()).max(1);
        let sessions = (0..count).map(|n| {
            // The first ones end early, one after the other, so that as many begin at any time as later.
            let first = |calls: u32| 1 + (calls as usize * n / count) as u32;
            Session::new(load, place + n, load.calls_per_session.map(first))
        });
        Self { place, sessions: sessions.collect(), n: 0, young: count }
    }

    /// True once each session has made its warm-up calls.
    pub(super) fn is_warm(&self) -> bool {
        self.young == 0
    }

    /// The next call of the next session.
    pub(super) fn call(&mut self, load: &LoadShape) -> PairRequest {
        let n = self.n;
        self.n += 1;
        self.sessions.rotate_left(1);
        let Some(session) = self.sessions.back_mut() else { unreachable!("an agent has a session at least") };
        if session.ends_at.is_some_and(|calls| session.made >= calls) {
            *session = Session::new(load, self.place + n as usize, load.calls_per_session);
            session.is_young = false;
        }
        session.made += 1;
        if session.is_young && session.made >= load.grown.max(1) {
            session.is_young = false;
            self.young -= 1;
        }
        let call_id = format!("call_{:05x}{n:019x}", self.place);
        session.call(&load.mix, call_id, self.place, n)
    }
}

impl Session {
    fn new(load: &LoadShape, place: usize, ends_at: Option<u32>) -> Self {
        let session_id = Uuid::now_v7().to_string();
        let agent_id = format!("agent-{}", place % load.agents);
        let caller = Caller { session_id, agent_id, ..Caller::default() };
        Self { caller, made: 0, ends_at, is_young: true, last: (String::new(), 0) }
    }

    fn call(&mut self, mix: &Mix, call_id: String, place: usize, n: u64) -> PairRequest {
        let (writes, fails, costs) = (falls_on(mix.writes, n), falls_on(mix.failures, n), falls_on(mix.costs, n));
        if self.last.0.is_empty() || !falls_on(mix.duplicates, n) {
            self.last = (arguments(writes, place, n, mix.argument_bytes), n);
        }
        let call = ToolCall {
            call_id: call_id.clone(),
            tool: if writes { WRITE } else { TOOL }.to_owned(),
            arguments_json: self.last.0.clone(),
            ..ToolCall::default()
        };
        let used = Usage { input_tokens: 900, output_tokens: 60, cost_micros: 120, ..Usage::default() };
        let question = EvaluateRequest {
            caller: Some(self.caller.clone()),
            call: Some(call),
            usage: costs.then_some(used),
            ..EvaluateRequest::default()
        };
        let told = RecordRequest {
            caller: Some(self.caller.clone()),
            call_id,
            usage: costs.then_some(Usage { cost_micros: 30, ..Usage::default() }),
            ..RecordRequest::default()
        };
        let report = if fails {
            let message = format!("Error: no flight on page {n}");
            let error = Some(ToolError { http_status: Some(404), message, ..ToolError::default() });
            RecordRequest { status: OutcomeStatus::Error.into(), error, ..told }
        } else {
            let result = Some(result(place, self.last.1, mix.result_bytes));
            RecordRequest { status: OutcomeStatus::Success.into(), result, ..told }
        };
        PairRequest { question, report }
    }
}

fn arguments(writes: bool, place: usize, n: u64, bytes: usize) -> String {
    let text = if writes {
        format!(r#"{{"booking_id":"B-{place}-{n}","date":"2024-05-20","cabin":"economy"}}"#)
    } else {
        format!(r#"{{"origin":"JFK","destination":"SEA","date":"2024-05-20","page":{n},"sort":"price"}}"#)
    };
    pad_text(text, "}", ",\"note\":\"", "\"}", bytes)
}

fn result(place: usize, n: u64, bytes: usize) -> String {
    let text = format!(r#"[{{"flight_number":"HAT{place}-{n}","status":"available","prices":{{"economy":{n}}}}}]"#);
    pad_text(text, "}]", ",\"note\":\"", "\"}]", bytes)
}

/// `text` padded before its `end` to at least `bytes` bytes.
fn pad_text(mut text: String, end: &str, before: &str, after: &str, bytes: usize) -> String {
    const WORDS: &str = "a window seat near the front, if there is one left at that price; ";
    if text.len() < bytes {
        text.truncate(text.len() - end.len());
        text += before;
        let missing = bytes.saturating_sub(text.len() + after.len());
        text.extend(WORDS.chars().cycle().take(missing));
        text += after;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::link::Transport;

    fn load() -> LoadShape {
        let mix = Mix { argument_bytes: 300, result_bytes: 500, ..Mix::default() };
        LoadShape {
            connections: 1,
            in_flight: 2,
            sessions: 6,
            calls_per_session: Some(4),
            grown: 0,
            agents: 3,
            tenants: 0,
            transport: Transport::Unary,
            rate: None,
            mix,
        }
    }

    #[test]
    fn sessions_end_one_after_the_other_and_make_their_calls() {
        let load = load();
        let mut agent = Agent::new(&load, 0);
        let mut calls = std::collections::BTreeMap::<String, usize>::new();
        let mut ids = std::collections::BTreeSet::new();
        for n in 0..120 {
            assert_eq!(agent.is_warm(), n >= 3, "each of its three sessions was asked for");
            let call = agent.call(&load);
            let caller = call.question.caller.expect("a caller");
            assert!(ids.insert((caller.session_id.clone(), call.report.call_id)));
            *calls.entry(caller.session_id).or_default() += 1;
        }
        let whole = calls.values().filter(|calls| **calls == 4).count();
        assert!(calls.len() > 25 && whole > 20, "{calls:?}");
        assert!(calls.values().all(|calls| *calls <= 4), "{calls:?}");
    }

    #[test]
    fn texts_are_json_of_the_size_asked_for() {
        let mut agent = Agent::new(&load(), 1);
        let call = agent.call(&load());
        let arguments = call.question.call.expect("a call").arguments_json;
        let result = call.report.result.expect("a result");
        assert_eq!((arguments.len(), result.len()), (300, 500));
        for text in [arguments, result] {
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
    }
}
