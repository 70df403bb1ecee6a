//! Calls of a call tree as a waterfall: in their order, each sub-agent's together, below the session that started it.

use prost_types::Timestamp;

use super::timeline::Step;
use crate::console::labels;
use callgate_proto::{
    time::unix_ms,
    v1::{CallEntry, Decision, OutcomeStatus},
};

/// The deepest nesting: a deeper sub-agent stands next to its parent.
const DEPTH_MAX: usize = 6;
/// The width of the time axis, in its own unit.
const AXIS: i64 = 1_000;
/// The narrowest bar.
const BAR_MIN: i64 = 4;

/// A line of the waterfall, or the begin or end of a group.
pub(super) enum TraceLine {
    Call(Box<TraceCall>),
    Open(SubAgent),
    Close,
}

/// A call with its place on the time axis.
pub(super) struct TraceCall {
    pub(super) step: Step,
    /// Time since the begin of the axis.
    pub(super) offset: String,
    /// Its duration, or the time between verdict and report.
    pub(super) took: String,
    pub(super) bar: Bar,
    /// Number of calls of its model turn, with the first one of several.
    pub(super) turn: usize,
}

/// The calls of a child session, with those below it.
pub(super) struct SubAgent {
    pub(super) session: String,
    pub(super) agent: String,
    /// Its parent, where no call of that is shown.
    pub(super) parent: String,
    pub(super) calls: usize,
    pub(super) refused: usize,
    pub(super) bar: Bar,
}

/// A span on the time axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) x: i64,
    pub(super) width: i64,
    pub(super) class: &'static str,
}

/// A waterfall.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) lines: Vec<TraceLine>,
    /// The begin of its time axis.
    pub(super) start: Option<Timestamp>,
    /// The length of its time axis.
    pub(super) length: String,
}

/// When a call began and ended, or `now` while it runs.
fn span(call: &CallEntry, now: i64) -> (i64, i64) {
    let begin = unix_ms(call.first_judge_time.as_ref());
    let end = match call.status() {
        OutcomeStatus::Running => now,
        _ => unix_ms(call.record_time.as_ref()).max(unix_ms(call.judge_time.as_ref())),
    };
    (begin, end.max(begin))
}

fn is_refused(call: &CallEntry) -> bool {
    matches!(call.decision(), Decision::Reuse | Decision::Deny | Decision::Stop)
}

fn class(call: &CallEntry) -> &'static str {
    match (call.decision(), call.status()) {
        _ if is_refused(call) => "bad",
        (Decision::Ask, OutcomeStatus::Unspecified) => "ask",
        (_, OutcomeStatus::Success) => "good",
        (_, OutcomeStatus::Error) => "bad",
        (_, OutcomeStatus::Cancelled) => "muted",
        _ => "warn",
    }
}

/// The time axis.
#[derive(Clone, Copy)]
struct Axis {
    begin: i64,
    length: i64,
}

impl Axis {
    fn bar(self, (begin, end): (i64, i64), class: &'static str) -> Bar {
        let at = |ms: i64| (ms - self.begin).saturating_mul(AXIS) / self.length;
        let x = at(begin).clamp(0, AXIS - BAR_MIN);
        Bar { x, width: (at(end) - x).clamp(BAR_MIN, AXIS - x), class }
    }
}

/// A session's calls and child sessions, in order.
struct Group {
    session: String,
    agent: String,
    parent: String,
    depth: usize,
    items: Vec<Item>,
}

enum Item {
    Call(Box<CallEntry>),
    Group(usize),
}

impl Trace {
    /// Of calls in their order, of the session `id` and others of its call tree. Running calls reach to `now`.
    pub(super) fn new(id: &str, calls: Vec<CallEntry>, now: i64) -> Self {
        let spans = || calls.iter().map(|call| span(call, now));
        let (Some(begin), Some(end)) = (spans().map(|span| span.0).min(), spans().map(|span| span.1).max()) else {
            return Self::default();
        };
        let axis = Axis { begin, length: (end - begin).max(1) };
        let seconds = begin.div_euclid(1_000);
        let nanos = i32::try_from(begin.rem_euclid(1_000) * 1_000_000).unwrap_or(0);
        let groups = Groups::new(id, calls);
        let mut lines = Lines { lines: Vec::new(), axis, now };
        lines.add(&groups.0, 0);
        Self {
            lines: lines.lines,
            start: Some(Timestamp { seconds, nanos }),
            length: labels::exact_span(u64::try_from(end - begin).unwrap_or(0)),
        }
    }
}

/// The first group is of calls that stand by themselves: those of the root, or of the session of the page.
struct Groups(Vec<Group>);

impl Groups {
    fn new(id: &str, calls: Vec<CallEntry>) -> Self {
        let top =
            Group { session: String::new(), agent: String::new(), parent: String::new(), depth: 0, items: Vec::new() };
        let mut groups = Self(vec![top]);
        for call in calls {
            let at = match call.depth {
                0 => 0,
                _ => groups.of(id, &call),
            };
            groups.0[at].items.push(Item::Call(Box::new(call)));
        }
        groups
    }

    fn of(&mut self, id: &str, call: &CallEntry) -> usize {
        let find = |groups: &[Group], session: &str| groups.iter().position(|group| group.session == session);
        if let Some(known) = find(&self.0, &call.session_id) {
            return known;
        }
        let parent = find(&self.0, &call.parent_session_id).unwrap_or(0);
        let at = if self.0[parent].depth < DEPTH_MAX { parent } else { self.outer(parent) };
        let is_shown = parent > 0 || call.parent_session_id == call.root_session_id || call.session_id == id;
        let new = self.0.len();
        let depth = self.0[at].depth + 1;
        self.0[at].items.push(Item::Group(new));
        self.0.push(Group {
            session: call.session_id.clone(),
            agent: call.agent_id.clone(),
            parent: if is_shown { String::new() } else { call.parent_session_id.clone() },
            depth,
            items: Vec::new(),
        });
        new
    }

    /// The group that holds another.
    fn outer(&self, of: usize) -> usize {
        let holds = |group: &Group| group.items.iter().any(|item| matches!(item, Item::Group(inner) if *inner == of));
        self.0.iter().position(holds).unwrap_or(0)
    }
}

struct Lines {
    lines: Vec<TraceLine>,
    axis: Axis,
    now: i64,
}

impl Lines {
    /// Adds a group's lines; recursion is bounded by `DEPTH_MAX`.
    fn add(&mut self, groups: &[Group], at: usize) {
        let items = &groups[at].items;
        for (no, item) in items.iter().enumerate() {
            match item {
                Item::Call(call) => {
                    let line = self.call(call, turn(items, no));
                    self.lines.push(TraceLine::Call(Box::new(line)));
                }
                Item::Group(inner) => {
                    let opened = self.open(groups, *inner);
                    self.lines.push(TraceLine::Open(opened));
                    self.add(groups, *inner);
                    self.lines.push(TraceLine::Close);
                }
            }
        }
    }

    fn call(&self, call: &CallEntry, turn: usize) -> TraceCall {
        let (begin, end) = span(call, self.now);
        let between = |from: i64, to: i64| labels::exact_span(u64::try_from(to - from).unwrap_or(0));
        let step = Step::new(call.clone());
        TraceCall {
            offset: between(self.axis.begin, begin),
            took: match &call.duration {
                Some(reported) => labels::exact_span(labels::to_millis(reported)),
                None if call.attempt > 0 => between(begin, end),
                None => String::new(),
            },
            bar: self.axis.bar((begin, end), class(call)),
            turn,
            step,
        }
    }

    fn open(&self, groups: &[Group], at: usize) -> SubAgent {
        let (mut calls, mut refused, mut ends) = (0, 0, (i64::MAX, i64::MIN));
        let mut inside = vec![at];
        while let Some(next) = inside.pop() {
            for item in &groups[next].items {
                match item {
                    Item::Group(inner) => inside.push(*inner),
                    Item::Call(call) => {
                        let (begin, end) = span(call, self.now);
                        ends = (ends.0.min(begin), ends.1.max(end));
                        calls += 1;
                        refused += usize::from(is_refused(call));
                    }
                }
            }
        }
        let Group { session, agent, parent, .. } = &groups[at];
        let (session, agent, parent) = (session.clone(), agent.clone(), parent.clone());
        SubAgent { session, agent, parent, calls, refused, bar: self.axis.bar(ends, "line") }
    }
}

/// Number of calls of a model turn, at its first one; 0 at all others, and for a turn of one call.
fn turn(items: &[Item], no: usize) -> usize {
    let batch = |item: &Item| match item {
        Item::Call(call) => Some(call.batch),
        Item::Group(_) => None,
    };
    let Some(own) = items.get(no).and_then(batch) else { return 0 };
    let is_first = no.checked_sub(1).and_then(|before| batch(&items[before])) != Some(own);
    let calls = items[no..].iter().take_while(|item| batch(item) == Some(own)).count();
    if is_first && calls > 1 { calls } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call((session, parent, depth): (&str, &str, u32), seq: u64, from_ms: i64, to_ms: i64) -> CallEntry {
        let at = |ms: i64| Some(Timestamp { seconds: ms / 1_000, nanos: (ms % 1_000) as i32 * 1_000_000 });
        CallEntry {
            session_id: session.into(),
            parent_session_id: parent.into(),
            root_session_id: "a".into(),
            depth,
            seq,
            batch: seq,
            call_id: format!("c{seq}"),
            first_judge_time: at(from_ms),
            judge_time: at(from_ms),
            record_time: at(to_ms),
            decision: Decision::Allow.into(),
            status: OutcomeStatus::Success.into(),
            attempt: 1,
            ..CallEntry::default()
        }
    }

    fn shape(trace: &Trace) -> String {
        let mut told = String::new();
        for line in &trace.lines {
            match line {
                TraceLine::Call(call) => told += &format!("{} ", call.step.call.call_id),
                TraceLine::Open(agent) => told += &format!("{}({}){{ ", agent.session, agent.calls),
                TraceLine::Close => told += "} ",
            }
        }
        told.trim_end().to_owned()
    }

    #[test]
    fn calls_of_a_sub_agent_stand_together_below_its_parent() {
        let (a, b, c) = (("a", "", 0), ("b", "a", 1), ("c", "b", 2));
        let calls = vec![
            call(a, 1, 0, 10),
            call(b, 2, 20, 30),
            call(a, 3, 40, 50),
            call(c, 4, 60, 70),
            call(b, 5, 80, 90),
            call(a, 6, 95, 99),
        ];
        assert_eq!(shape(&Trace::new("a", calls, 0)), "c1 b(3){ c2 c(1){ c4 } c5 } c3 c6");
        // A page without calls of the parent names it.
        let trace = Trace::new("a", vec![call(c, 4, 60, 70)], 0);
        let Some(TraceLine::Open(agent)) = trace.lines.first() else { panic!("{}", shape(&trace)) };
        assert_eq!(agent.parent, "b");
    }

    #[test]
    fn deep_nesting_is_bounded() {
        let names: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
        let calls = (1..20).map(|n| call((&names[n], &names[n - 1], n as u32), n as u64, 0, 1)).collect();
        let told = shape(&Trace::new("s0", calls, 0));
        let deepest = told.chars().scan(0, |depth, char| {
            *depth += i32::from(char == '{') - i32::from(char == '}');
            Some(*depth)
        });
        assert_eq!((deepest.max(), told.matches('{').count()), (Some(DEPTH_MAX as i32), 19), "{told}");
    }

    #[test]
    fn bars_are_in_proportion_to_time() {
        let a = ("a", "", 0);
        let running = CallEntry { status: OutcomeStatus::Running.into(), record_time: None, ..call(a, 3, 500, 500) };
        let refused = CallEntry { decision: Decision::Deny.into(), attempt: 0, ..call(a, 2, 250, 250) };
        let trace = Trace::new("a", vec![call(a, 1, 0, 250), refused, running], 1_000);
        let told = trace.lines.iter().map(|line| match line {
            TraceLine::Call(call) => (call.bar, call.offset.as_str(), call.took.as_str()),
            TraceLine::Open(_) | TraceLine::Close => panic!("no group"),
        });
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                (Bar { x: 0, width: 250, class: "good" }, "0 ms", "250 ms"),
                (Bar { x: 250, width: BAR_MIN, class: "bad" }, "250 ms", ""),
                (Bar { x: 500, width: 500, class: "warn" }, "500 ms", "500 ms"),
            ]
        );
        assert_eq!(trace.length, "1.000 s");
    }

    #[test]
    fn calls_of_one_model_turn_are_counted_at_the_first() {
        let a = ("a", "", 0);
        let of_turn = |seq| CallEntry { batch: 2, ..call(a, seq, 0, 1) };
        let trace = Trace::new("a", vec![call(a, 1, 0, 1), of_turn(2), of_turn(3), call(a, 4, 0, 1)], 0);
        let turns = trace.lines.iter().map(|line| if let TraceLine::Call(call) = line { call.turn } else { 9 });
        assert_eq!(turns.collect::<Vec<_>>(), [0, 2, 0, 0]);
    }
}
