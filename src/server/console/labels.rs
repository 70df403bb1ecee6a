//! Closed sets of the contract in words: a word, and its CSS class.

use prost_types::Duration;

use callgate_core::domain::outcome::Repeat;
use callgate_proto::v1::{
    self, BudgetDimension, BudgetScope, BudgetUsage, Decision, FailureKind, HaltScope, LoopLevel, OutcomeStatus,
    SessionStatus,
};

/// A word with its class.
#[derive(Debug, Clone, Copy)]
pub(super) struct StyledWord {
    pub(super) class: &'static str,
    pub(super) text: &'static str,
}

const fn word(class: &'static str, text: &'static str) -> StyledWord {
    StyledWord { class, text }
}

/// The name of a member without its set's, in small letters.
fn member(name: &str, set: &str) -> String {
    name.trim_start_matches(set).to_lowercase().replace('_', " ")
}

pub(super) fn decision(decision: Decision) -> StyledWord {
    match decision {
        Decision::Unspecified => word("muted", "none"),
        Decision::Allow => word("good", "ALLOW"),
        Decision::Ask => word("ask", "ASK"),
        Decision::Wait => word("warn", "WAIT"),
        Decision::Reuse => word("muted", "REUSE"),
        Decision::Deny => word("bad", "DENY"),
        Decision::Stop => word("bad", "STOP"),
    }
}

/// Outcome of a call; none for one that was never permitted.
pub(super) fn status(status: OutcomeStatus) -> Option<StyledWord> {
    Some(match status {
        OutcomeStatus::Unspecified => return None,
        OutcomeStatus::Running => word("warn", "running"),
        OutcomeStatus::Success => word("good", "success"),
        OutcomeStatus::Error => word("bad", "error"),
        OutcomeStatus::Cancelled => word("muted", "cancelled"),
        OutcomeStatus::Unknown => word("warn", "outcome unknown"),
    })
}

pub(super) fn standing(standing: SessionStatus) -> StyledWord {
    match standing {
        SessionStatus::Halted => word("bad", "halted"),
        SessionStatus::Held => word("ask", "waiting for approval"),
        SessionStatus::Calling => word("good", "running a call"),
        SessionStatus::Stopped => word("bad", "stopped"),
        SessionStatus::Idle | SessionStatus::Unspecified => word("muted", "idle"),
    }
}

pub(super) fn level(level: LoopLevel) -> Option<StyledWord> {
    Some(match level {
        LoopLevel::Unspecified => return None,
        LoopLevel::Warning => word("warn", "warning"),
        LoopLevel::Critical => word("bad", "critical"),
        LoopLevel::Break => word("bad", "break"),
    })
}

pub(super) fn failure(kind: FailureKind) -> String {
    match kind {
        FailureKind::Unspecified => String::new(),
        kind => member(kind.as_str_name(), "FAILURE_KIND_"),
    }
}

pub(super) fn repeat(repeat: v1::Repeat) -> Repeat {
    Repeat::from_name(&member(repeat.as_str_name(), "REPEAT_")).unwrap_or(Repeat::Never)
}

/// Scope of a halt, in a word.
pub(super) fn halt_scope(scope: HaltScope) -> &'static str {
    match scope {
        HaltScope::Session => "session",
        HaltScope::Agent => "agent",
        HaltScope::Tool => "tool",
        HaltScope::Tenant | HaltScope::Unspecified => "everything",
    }
}

/// A budget, by its dimension and scope.
pub(super) fn budget(left: &BudgetUsage) -> String {
    let what = match left.dimension() {
        BudgetDimension::CostMicros => "cost".to_owned(),
        BudgetDimension::ElapsedMs => "time".to_owned(),
        BudgetDimension::CallsPerTool => "calls of the last tool".to_owned(),
        BudgetDimension::ConsecutiveSameTool => "consecutive calls of the last tool".to_owned(),
        BudgetDimension::SessionDepth => "depth of sub-agents".to_owned(),
        dimension => member(dimension.as_str_name(), "BUDGET_DIMENSION_"),
    };
    let whose = match left.scope() {
        BudgetScope::Run => "of the run",
        BudgetScope::CallTree => "of the session with its sub-agents",
        BudgetScope::Agent => "of the agent today (UTC)",
        BudgetScope::Tenant => "of the tenant today (UTC)",
        BudgetScope::Unspecified => "",
    };
    format!("{what} {whose}")
}

/// An amount of a budget in its unit.
pub(super) fn amount(dimension: BudgetDimension, amount: u64) -> String {
    match dimension {
        BudgetDimension::CostMicros => super::filters::dollars(amount),
        BudgetDimension::ElapsedMs => took(amount),
        _ => super::filters::group_thousands(amount),
    }
}

pub(super) fn to_millis(span: &Duration) -> u64 {
    let seconds = u64::try_from(span.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000) + u64::try_from(span.nanos).unwrap_or(0) / 1_000_000
}

/// A span of time in words; empty where it is unknown.
pub(super) fn span(span: Option<&Duration>) -> String {
    span.map(to_millis).map(took).unwrap_or_default()
}

/// A span of time to the millisecond.
pub(super) fn exact_span(ms: u64) -> String {
    let seconds = |ms: u64| format!("{}.{:03} s", ms / 1_000, ms % 1_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => seconds(ms),
        60_000..3_600_000 => format!("{} min {}", ms / 60_000, seconds(ms % 60_000)),
        _ => format!("{} h {} min {}", ms / 3_600_000, ms % 3_600_000 / 60_000, seconds(ms % 60_000)),
    }
}

/// The same of milliseconds.
pub(super) fn took(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        3_600_000..86_400_000 => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
        _ => format!("{} d {} h", ms / 86_400_000, ms % 86_400_000 / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_the_unit_that_fits() {
        let told = [0, 999, 1_250, 61_000, 3_660_000, 90_000_000].map(took);
        assert_eq!(told, ["0 ms", "999 ms", "1.2 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(span(Some(&Duration { seconds: 2, nanos: 500_000_000 })), "2.5 s");
        let exact = [7, 1_250, 61_002, 3_660_000].map(exact_span);
        assert_eq!(exact, ["7 ms", "1.250 s", "1 min 1.002 s", "1 h 1 min 0.000 s"]);
        assert_eq!(failure(FailureKind::RateLimited), "rate limited");
    }
}
