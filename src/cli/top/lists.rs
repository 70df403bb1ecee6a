//! The lists of a fleet, as rows of text.

use super::{figures::VerdictLabels, fleet::FleetSnapshot};
use callgate_client::remote::member_name;
use callgate_core::domain::time::Timestamp;
use callgate_proto::{
    time::unix_ms,
    v1::{SessionStatus, SessionSummary},
};
use callgate_server::telemetry::names;

/// Label of tools that metrics do not name.
const OTHER_TOOLS: &str = "(others)";

/// Kind of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Sessions,
    Approvals,
    Refusals,
    Cooldowns,
    Budgets,
    Halts,
}

impl ListKind {
    pub(super) const ALL: [Self; 6] =
        [Self::Sessions, Self::Approvals, Self::Refusals, Self::Cooldowns, Self::Budgets, Self::Halts];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Sessions => "Sessions",
            Self::Approvals => "Approvals",
            Self::Refusals => "Refusals by this replica",
            Self::Cooldowns => "Open circuit breakers",
            Self::Budgets => "Budgets",
            Self::Halts => "Halts",
        }
    }

    /// Column names.
    pub(super) const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Sessions => &["session", "active", "calls", "open", "cost", "state"],
            Self::Approvals => &["age", "expires", "tool", "session", "for"],
            Self::Refusals => &["tool", "decision", "rule", "reason", "/s", "all"],
            Self::Cooldowns => &["tool", "failure", "ends in"],
            Self::Budgets => &["name", "scope", "limit on", "used", "of", ""],
            Self::Halts => &["what", "name", "since", "by", "reason"],
        }
    }

    pub(super) fn rows(self, fleet: &FleetSnapshot) -> Vec<Vec<String>> {
        match self {
            Self::Sessions => sessions(fleet),
            Self::Approvals => approvals(fleet),
            Self::Refusals => refusals(fleet),
            Self::Cooldowns => cooldowns(fleet),
            Self::Budgets => budgets(fleet),
            Self::Halts => halts(fleet),
        }
    }
}

/// Short duration between two times: `4m`.
fn describe_duration(from: Timestamp, to: Timestamp) -> String {
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

/// Age.
pub(super) fn ago(fleet: &FleetSnapshot, time: Option<&prost_types::Timestamp>) -> String {
    if time.is_some() { describe_duration(moment(time), fleet.at) } else { "-".to_owned() }
}

/// Remaining time.
fn ahead(fleet: &FleetSnapshot, time: Option<&prost_types::Timestamp>) -> String {
    if time.is_some() { describe_duration(fleet.at, moment(time)) } else { "-".to_owned() }
}

pub(super) fn dollars(micros: u64) -> String {
    format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

/// State of a session, unless simply active.
pub(super) fn standing(session: &SessionSummary) -> &'static str {
    match session.status() {
        _ if session.halted => "halted",
        SessionStatus::Halted => "halted",
        SessionStatus::Held => "held",
        SessionStatus::Stopped => "stopped",
        SessionStatus::Calling | SessionStatus::Idle | SessionStatus::Unspecified => "",
    }
}

/// Most recently active first, in the server's order.
fn sessions(fleet: &FleetSnapshot) -> Vec<Vec<String>> {
    let row = |session: &SessionSummary| {
        vec![
            session.session_id.clone(),
            ago(fleet, session.update_time.as_ref()),
            session.calls.to_string(),
            session.open_calls.to_string(),
            dollars(session.cost_micros),
            standing(session).to_owned(),
        ]
    };
    fleet.sessions.iter().map(row).collect()
}

fn approvals(fleet: &FleetSnapshot) -> Vec<Vec<String>> {
    let mut all: Vec<_> = fleet.approvals.iter().collect();
    all.sort_by_key(|approval| unix_ms(approval.create_time.as_ref()));
    let row = |approval: &callgate_proto::v1::Approval| {
        vec![
            ago(fleet, approval.create_time.as_ref()),
            ahead(fleet, approval.expire_time.as_ref()),
            approval.tool.clone(),
            approval.session_id.clone(),
            if approval.group.is_empty() { "any approver".to_owned() } else { approval.group.clone() },
        ]
    };
    all.into_iter().map(row).collect()
}

/// Refusals, the currently most frequent first.
pub(super) fn list_refusals(fleet: &FleetSnapshot) -> Vec<(&VerdictLabels, f64, f64)> {
    let counted = fleet.figures.iter().flat_map(|figures| &figures.verdicts);
    let mut all: Vec<(&VerdictLabels, f64, f64)> = counted
        .filter(|(verdict, count)| verdict.decision != "ALLOW" && **count > 0.0)
        .map(|(verdict, count)| (verdict, fleet.rates.get(verdict).copied().unwrap_or_default(), *count))
        .collect();
    all.sort_by(|a, b| (b.1, b.2).partial_cmp(&(a.1, a.2)).unwrap_or(std::cmp::Ordering::Equal));
    all
}

fn refusals(fleet: &FleetSnapshot) -> Vec<Vec<String>> {
    let row = |(verdict, rate, count): (&VerdictLabels, f64, f64)| {
        vec![
            if verdict.tool == names::OTHER { OTHER_TOOLS.to_owned() } else { verdict.tool.clone() },
            verdict.decision.clone(),
            verdict.rule.clone(),
            verdict.reason.clone(),
            if fleet.has_rates { format!("{rate:.1}") } else { "-".to_owned() },
            format!("{count:.0}"),
        ]
    };
    list_refusals(fleet).into_iter().map(row).collect()
}

/// A tool with an open circuit: failure and end.
pub(super) type OpenCircuitRow<'a> = (&'a str, String, Option<&'a prost_types::Timestamp>);

/// Tools with an open circuit.
pub(super) fn cooling(fleet: &FleetSnapshot) -> Vec<OpenCircuitRow<'_>> {
    let open = fleet.overview.tools.iter().filter(|tool| tool.circuit_breaker_open_end_time.is_some());
    let one = |tool: &'_ callgate_proto::v1::ToolTrouble| {
        member_name(tool.circuit_breaker_failure().as_str_name(), "FAILURE_KIND_")
    };
    open.map(|tool| (tool.tool.as_str(), one(tool), tool.circuit_breaker_open_end_time.as_ref())).collect()
}

fn cooldowns(fleet: &FleetSnapshot) -> Vec<Vec<String>> {
    let row = |(tool, kind, until): OpenCircuitRow<'_>| vec![tool.to_owned(), kind, ahead(fleet, until)];
    cooling(fleet).into_iter().map(row).collect()
}

/// A budget near its limit: agent or root session, scope, dimension, usage and limit.
pub(super) type NearLimitRow<'a> = (&'a str, String, String, u64, u64);

/// Budgets by usage, the fullest first, in the server's order.
pub(super) fn near(fleet: &FleetSnapshot) -> Vec<NearLimitRow<'_>> {
    let named_of = |near: &'_ callgate_proto::v1::NearBudget| {
        let scope = member_name(near.scope().as_str_name(), "BUDGET_SCOPE_");
        (scope, member_name(near.dimension().as_str_name(), "BUDGET_DIMENSION_"))
    };
    let all = fleet.overview.budgets.iter().map(|near| (near, named_of(near)));
    all.map(|(near, (scope, dimension))| (near.name.as_str(), scope, dimension, near.used, near.limit)).collect()
}

fn share(used: u64, limit: u64) -> f64 {
    used as f64 / limit.max(1) as f64
}

fn budgets(fleet: &FleetSnapshot) -> Vec<Vec<String>> {
    let row = |(name, scope, dimension, used, limit): NearLimitRow<'_>| {
        let amount = |n: u64| if dimension == "cost_micros" { dollars(n) } else { n.to_string() };
        let (used_up, of) = (amount(used), amount(limit));
        let percent = format!("{:.0}%", share(used, limit) * 100.0);
        vec![name.to_owned(), scope, dimension, used_up, of, percent]
    };
    near(fleet).into_iter().map(row).collect()
}

fn halts(fleet: &FleetSnapshot) -> Vec<Vec<String>> {
    let row = |halt: &callgate_proto::v1::HaltState| {
        let what = member_name(halt.scope().as_str_name(), "HALT_SCOPE_");
        let name = if what == "tenant" { "everything".to_owned() } else { halt.name.clone() };
        vec![what, name, ago(fleet, halt.create_time.as_ref()), halt.by.clone(), halt.reason.clone()]
    };
    fleet.halts.iter().map(row).collect()
}
