//! The lists of a fleet, as rows of text: for the screen, and for one look as text.

use std::collections::BTreeMap;

use super::{figures::Verdict, fleet::Fleet};
use crate::{cli::remote::named, telemetry::names};
use callgate_core::domain::time::Timestamp;
use callgate_proto::time::unix_ms;
use callgate_proto::v1::{CallState, CallSummary, SessionState, SessionSummary};

/// For people: tools that metrics do not tell by name.
const OTHER_TOOLS: &str = "(others)";
/// From which share of a limit on a budget is told of.
const NEAR: f64 = 0.8;

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum List {
    #[default]
    Sessions,
    Approvals,
    Refusals,
    Cooldowns,
    Budgets,
    Halts,
}

/// By what sessions stand in their list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Order {
    #[default]
    Heard,
    Open,
    Calls,
    Cost,
}

/// A row, and the session that it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) session: Option<String>,
    pub(super) cells: Vec<String>,
}

impl List {
    pub(super) const ALL: [Self; 6] =
        [Self::Sessions, Self::Approvals, Self::Refusals, Self::Cooldowns, Self::Budgets, Self::Halts];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Sessions => "Sessions",
            Self::Approvals => "Approvals",
            Self::Refusals => "Refusals",
            Self::Cooldowns => "Cooldowns",
            Self::Budgets => "Budgets",
            Self::Halts => "Halts",
        }
    }

    /// The heads of its columns, each with its width; 0 takes what is left.
    pub(super) const fn columns(self) -> &'static [(&'static str, u16)] {
        match self {
            Self::Sessions => &[("session", 0), ("heard", 6), ("calls", 7), ("open", 5), ("cost", 9), ("state", 8)],
            Self::Approvals => &[("asked", 6), ("ends in", 8), ("tool", 20), ("session", 0), ("for", 12)],
            Self::Refusals => &[("tool", 0), ("decision", 8), ("rule", 16), ("reason", 22), ("/s", 6), ("all", 7)],
            Self::Cooldowns => &[("tool", 0), ("failure", 16), ("ends in", 8), ("seen in", 24)],
            Self::Budgets => &[("session", 0), ("scope", 10), ("limit on", 22), ("used", 11), ("of", 11), ("", 5)],
            Self::Halts => &[("what", 8), ("name", 0), ("since", 6), ("by", 12), ("reason", 24)],
        }
    }

    /// What is said where there is no row.
    pub(super) fn nothing(self, fleet: &Fleet) -> String {
        match self {
            Self::Sessions => "No session has called anything yet.".to_owned(),
            Self::Approvals => "No question is open.".to_owned(),
            Self::Refusals if fleet.figures.is_none() => format!("Not known: {}", fleet.without_figures),
            Self::Refusals => "Nothing was refused since this replica began to count.".to_owned(),
            Self::Cooldowns => "No tool is in cooldown.".to_owned(),
            Self::Budgets => "No budget is used up by 80 % or more.".to_owned(),
            Self::Halts => "Nothing is halted.".to_owned(),
        }
    }

    /// What has to be said of the rows.
    pub(super) fn note(self, rows: &[Row]) -> Option<&'static str> {
        let has_others = rows.iter().any(|row| row.cells.first().is_some_and(|tool| tool == OTHER_TOOLS));
        (self == Self::Refusals && has_others)
            .then_some("(others): tools that the policy does not declare, or past a hundred, counted together")
    }

    pub(super) fn rows(self, fleet: &Fleet, order: Order) -> Vec<Row> {
        match self {
            Self::Sessions => sessions(fleet, order),
            Self::Approvals => approvals(fleet),
            Self::Refusals => refusals(fleet),
            Self::Cooldowns => cooldowns(fleet),
            Self::Budgets => budgets(fleet),
            Self::Halts => halts(fleet),
        }
    }
}

impl Order {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Heard => Self::Open,
            Self::Open => Self::Calls,
            Self::Calls => Self::Cost,
            Self::Cost => Self::Heard,
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Heard => "heard last",
            Self::Open => "open calls",
            Self::Calls => "calls",
            Self::Cost => "cost",
        }
    }
}

/// The time between two moments, short: `4m`.
fn between(from: Timestamp, to: Timestamp) -> String {
    match to.since_ms(from) / 1_000 {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3_600 => format!("{}m", s / 60),
        s @ 3_600..86_400 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

fn moment(time: Option<&prost_types::Timestamp>) -> Timestamp {
    Timestamp::from_millis(unix_ms(time))
}

/// How long ago.
pub(super) fn ago(fleet: &Fleet, time: Option<&prost_types::Timestamp>) -> String {
    if time.is_some() { between(moment(time), fleet.at) } else { "-".to_owned() }
}

/// How long from now.
fn ahead(fleet: &Fleet, time: Option<&prost_types::Timestamp>) -> String {
    if time.is_some() { between(fleet.at, moment(time)) } else { "-".to_owned() }
}

pub(super) fn dollars(micros: u64) -> String {
    format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

/// What a session is, where it is not just going on.
pub(super) fn standing(fleet: &Fleet, session: &SessionSummary) -> &'static str {
    let state = fleet.states.iter().find(|state| state.session_id == session.session_id);
    match state {
        _ if session.halted => "halted",
        Some(state) if state.is_stopped => "stopped",
        Some(state) if state.calls.iter().any(|call| call.state() == CallState::Held) => "held",
        _ => "",
    }
}

fn sessions(fleet: &Fleet, order: Order) -> Vec<Row> {
    let mut all: Vec<&SessionSummary> = fleet.sessions.iter().collect();
    // Stable: of what is alike, the one heard of last comes first, as the server tells them.
    match order {
        Order::Heard => {}
        Order::Open => all.sort_by_key(|session| std::cmp::Reverse(session.open_calls)),
        Order::Calls => all.sort_by_key(|session| std::cmp::Reverse(session.calls)),
        Order::Cost => all.sort_by_key(|session| std::cmp::Reverse(session.cost_micros)),
    }
    let row = |session: &SessionSummary| Row {
        session: Some(session.session_id.clone()),
        cells: vec![
            session.session_id.clone(),
            ago(fleet, session.update_time.as_ref()),
            session.calls.to_string(),
            session.open_calls.to_string(),
            dollars(session.cost_micros),
            standing(fleet, session).to_owned(),
        ],
    };
    all.into_iter().map(row).collect()
}

fn approvals(fleet: &Fleet) -> Vec<Row> {
    let mut all: Vec<_> = fleet.approvals.iter().collect();
    all.sort_by_key(|approval| unix_ms(approval.create_time.as_ref()));
    let row = |approval: &callgate_proto::v1::Approval| Row {
        session: Some(approval.session_id.clone()),
        cells: vec![
            ago(fleet, approval.create_time.as_ref()),
            ahead(fleet, approval.expire_time.as_ref()),
            approval.tool.clone(),
            approval.session_id.clone(),
            if approval.group.is_empty() { "anybody".to_owned() } else { approval.group.clone() },
        ],
    };
    all.into_iter().map(row).collect()
}

/// What was not let through, what happens most now first.
pub(super) fn refused(fleet: &Fleet) -> Vec<(&Verdict, f64, f64)> {
    let counted = fleet.figures.iter().flat_map(|figures| &figures.verdicts);
    let mut all: Vec<(&Verdict, f64, f64)> = counted
        .filter(|(verdict, count)| verdict.decision != "ALLOW" && **count > 0.0)
        .map(|(verdict, count)| (verdict, fleet.rates.get(verdict).copied().unwrap_or_default(), *count))
        .collect();
    all.sort_by(|a, b| (b.1, b.2).partial_cmp(&(a.1, a.2)).unwrap_or(std::cmp::Ordering::Equal));
    all
}

fn refusals(fleet: &Fleet) -> Vec<Row> {
    let row = |(verdict, rate, count): (&Verdict, f64, f64)| Row {
        session: None,
        cells: vec![
            if verdict.tool == names::OTHER { OTHER_TOOLS.to_owned() } else { verdict.tool.clone() },
            verdict.decision.clone(),
            verdict.rule.clone(),
            verdict.reason.clone(),
            if fleet.has_rates { format!("{rate:.1}") } else { "-".to_owned() },
            format!("{count:.0}"),
        ],
    };
    refused(fleet).into_iter().map(row).collect()
}

/// A tool in cooldown: the failure, when it ends, and a session that was told.
pub(super) type Cooling<'a> = (&'a str, String, Option<&'a prost_types::Timestamp>, &'a str);

/// Tools in cooldown, each once.
pub(super) fn cooling(fleet: &Fleet) -> Vec<Cooling<'_>> {
    let mut all: BTreeMap<&str, Cooling<'_>> = BTreeMap::new();
    for state in &fleet.states {
        for cooldown in &state.cooldowns {
            let kind = named(cooldown.failure().as_str_name(), "FAILURE_KIND_");
            let one = (cooldown.tool.as_str(), kind, cooldown.expire_time.as_ref(), state.session_id.as_str());
            all.entry(&cooldown.tool).or_insert(one);
        }
    }
    all.into_values().collect()
}

fn cooldowns(fleet: &Fleet) -> Vec<Row> {
    let row = |(tool, kind, until, session): Cooling<'_>| Row {
        session: Some(session.to_owned()),
        cells: vec![tool.to_owned(), kind, ahead(fleet, until), session.to_owned()],
    };
    cooling(fleet).into_iter().map(row).collect()
}

/// A budget near its end: the session, the scope, the dimension, what is used and the limit.
pub(super) type Near<'a> = (&'a str, String, String, u64, u64);

/// Budgets of which most is used, the fullest first.
pub(super) fn near(fleet: &Fleet) -> Vec<Near<'_>> {
    let mut all = Vec::new();
    for state in &fleet.states {
        for left in state.budgets.iter().filter(|left| left.limit > 0 && share(left.used, left.limit) >= NEAR) {
            let scope = named(left.scope().as_str_name(), "BUDGET_SCOPE_");
            let dimension = named(left.dimension().as_str_name(), "BUDGET_DIMENSION_");
            all.push((state.session_id.as_str(), scope, dimension, left.used, left.limit));
        }
    }
    all.sort_by(|a, b| share(b.3, b.4).total_cmp(&share(a.3, a.4)));
    all
}

fn share(used: u64, limit: u64) -> f64 {
    used as f64 / limit as f64
}

fn budgets(fleet: &Fleet) -> Vec<Row> {
    let row = |(session, scope, dimension, used, limit): Near<'_>| {
        let amount = |n: u64| if dimension == "cost_micros" { dollars(n) } else { n.to_string() };
        let (used_up, of) = (amount(used), amount(limit));
        let percent = format!("{:.0}%", share(used, limit) * 100.0);
        Row {
            session: Some(session.to_owned()),
            cells: vec![session.to_owned(), scope, dimension, used_up, of, percent],
        }
    };
    near(fleet).into_iter().map(row).collect()
}

fn halts(fleet: &Fleet) -> Vec<Row> {
    let row = |halt: &callgate_proto::v1::HaltState| {
        let what = named(halt.scope().as_str_name(), "HALT_SCOPE_");
        let is_session = what == "session";
        let name = if what == "tenant" { "everything".to_owned() } else { halt.name.clone() };
        Row {
            session: is_session.then(|| halt.name.clone()),
            cells: vec![what, name, ago(fleet, halt.create_time.as_ref()), halt.by.clone(), halt.reason.clone()],
        }
    };
    fleet.halts.iter().map(row).collect()
}

/// What a session did, the newest call first: when, what came of it, the tool, and what it said.
pub(super) fn timeline(state: &SessionState) -> Vec<Row> {
    let said = |call: &CallSummary| match (&*call.error_message, &*call.reason, &*call.gist) {
        ("", "", gist) => gist.to_owned(),
        ("", reason, _) => reason.to_owned(),
        (error, ..) => error.to_owned(),
    };
    let mut calls: Vec<&CallSummary> = state.calls.iter().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(unix_ms(call.judge_time.as_ref())));
    let row = |call: &CallSummary| {
        let at = chrono::DateTime::from_timestamp_millis(unix_ms(call.judge_time.as_ref()));
        let at = at.map_or_else(|| "-".to_owned(), |at| at.format("%H:%M:%S").to_string());
        let what = named(call.state().as_str_name(), "CALL_STATE_");
        let line = format!("{} {}", call.tool, call.arguments);
        Row { session: None, cells: vec![at, what, line, said(call)] }
    };
    calls.into_iter().map(row).collect()
}

/// How long the oldest question has been open.
pub(super) fn oldest(fleet: &Fleet) -> Option<String> {
    let oldest = fleet.approvals.iter().map(|approval| unix_ms(approval.create_time.as_ref())).min()?;
    Some(between(Timestamp::from_millis(oldest), fleet.at))
}
