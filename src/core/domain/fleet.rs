//! Fleet overview: counts of decisions, waits, halts and health per minute.

use super::{
    budget::{BudgetScope, Budgets, Dimension},
    closed_set::closed_set,
    failure::FailureKind,
    finding::Decision,
    time::Timestamp,
};

/// A minute, in milliseconds.
pub const MINUTE_MS: i64 = 60_000;

closed_set! {
    /// Part of an overview that is read on its own.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FleetPart {
        /// Judgments by decision.
        Decisions = "decisions",
        /// Open approval requests.
        Approvals = "approval requests",
        /// Halts of the past hour.
        Halts = "halts",
        /// Permitted calls without an outcome.
        Running = "running calls",
        /// Sessions whose last judgment is a STOP.
        Stopped = "stopped sessions",
        /// Their number at the end of each minute.
        StoppedMinutes = "stopped sessions by minute",
        /// Unhealthy tools.
        Tools = "tools",
        /// Budgets near their limit, and active call trees.
        Budgets = "budgets",
        /// Savings by refusals.
        Savings = "savings",
    }
}

/// Number of judgments per decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecisionCounts([u64; Decision::ALL.len()]);

impl DecisionCounts {
    /// As many more of one decision.
    pub fn add(&mut self, decision: Decision, count: u64) {
        self.0[decision as usize] += count;
    }

    /// Of one decision.
    #[must_use]
    pub const fn of(&self, decision: Decision) -> u64 {
        self.0[decision as usize]
    }

    /// Those that were made, in the order of [`Decision::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Decision, u64)> + '_ {
        Decision::ALL.into_iter().map(|decision| (decision, self.of(decision))).filter(|(_, count)| *count > 0)
    }
}

/// Lifetime of an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalLifetime {
    /// Waiting session.
    pub session: String,
    pub at: Timestamp,
    /// Time at which it was answered, withdrawn or expired.
    pub until: Timestamp,
}

impl ApprovalLifetime {
    /// Was it open then?
    #[must_use]
    pub fn is_open(&self, at: Timestamp) -> bool {
        self.at <= at && at < self.until
    }
}

/// Running calls and active call trees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calling {
    /// Permits without an outcome.
    pub open_calls: u64,
    /// Call trees with one.
    pub trees: u64,
    /// Call trees active within the last hour.
    pub active_trees: u64,
}

/// Health problem of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolTrouble {
    pub tool: String,
    /// Failures in a row that may pass by themselves.
    pub failures: u32,
    /// Since the first of them.
    pub failing_since: Option<Timestamp>,
    /// Cause and end of its open circuit.
    pub cooldown: Option<(FailureKind, Timestamp)>,
}

/// A budget near its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetNearLimit {
    pub scope: BudgetScope,
    /// The agent or the root session; empty for the tenant.
    pub name: String,
    pub dimension: Dimension,
    pub used: u64,
    pub limit: u64,
}

/// Usage of a limit from which it counts as near, in percent.
pub const NEAR_PERCENT: u64 = 80;

/// The shared limits of the given scopes.
#[must_use]
pub fn shared_limits(budgets: &Budgets, scopes: &[BudgetScope]) -> Vec<(BudgetScope, Dimension, u64)> {
    let of = |scope: &BudgetScope| {
        let scope = *scope;
        budgets.of(scope).iter().filter(|(dimension, _)| dimension.is_shared()).map(move |(d, limit)| (scope, d, limit))
    };
    scopes.iter().flat_map(of).collect()
}

/// Savings by refusals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusalSavings {
    /// Calls answered with a previous result.
    pub reused: u64,
    pub denied: u64,
    pub stopped: u64,
    /// Those among `reused` with a known cost, and that cost.
    pub priced: u64,
    pub cost_micros: u64,
    /// The same of tokens.
    pub with_tokens: u64,
    pub tokens: u64,
}

impl RefusalSavings {
    /// The sum of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            reused: self.reused + other.reused,
            denied: self.denied + other.denied,
            stopped: self.stopped + other.stopped,
            priced: self.priced + other.priced,
            cost_micros: self.cost_micros.saturating_add(other.cost_micros),
            with_tokens: self.with_tokens + other.with_tokens,
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }
}

/// Counts of one minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Minute {
    pub start: Timestamp,
    /// End of the minute; now, for the current one.
    pub end: Timestamp,
    pub decided: DecisionCounts,
    /// Approval requests open at its end.
    pub open_approvals: u64,
    /// Sessions that waited for one of them.
    pub held: u64,
    /// When the oldest of them was asked.
    pub oldest_approval: Option<Timestamp>,
    /// Sessions whose last judgment within the hour before its end is a STOP.
    pub stopped: u64,
    /// Halts that held at its end.
    pub halts: u64,
    /// Savings within it; none while not counted yet.
    pub saved: Option<RefusalSavings>,
    /// In-memory metrics of this replica; none where it took none.
    pub seen: ReplicaMinute,
}

/// In-memory metrics of one replica for one minute. They are not stored: minutes in which the replica did not run have
/// none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaMinute {
    /// Maximum number of open circuits.
    pub cooling: Option<u64>,
    /// Number of budgets near their limit, if counted.
    pub near_budgets: Option<u64>,
    /// Load of the replica.
    pub plane: Option<PlaneMinute>,
}

/// Peak load of a replica within a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneMinute {
    /// Evaluates in execution and in the queue.
    pub judging: u64,
    pub waiting: u64,
    /// Changes that wait for a commit.
    pub uncommitted: u64,
    /// Slowest health query, in milliseconds; none where all failed.
    pub database_ms: Option<u64>,
    /// Failed health queries.
    pub unanswered: u64,
}

/// A time for which something held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan {
    pub from: Timestamp,
    /// None while it holds.
    pub until: Option<Timestamp>,
}

impl TimeSpan {
    /// True when it held at that time.
    #[must_use]
    pub fn covers(&self, at: Timestamp) -> bool {
        self.from <= at && self.until.is_none_or(|until| at < until)
    }
}

/// The overview at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetOverview {
    pub at: Timestamp,
    /// The last hour, the oldest first.
    pub minutes: Vec<Minute>,
    /// The last minute up to this moment.
    pub lately: DecisionCounts,
    pub calling: Calling,
    /// Sessions that wait for a person.
    pub held: u64,
    /// Sessions whose last judgment within the last hour is a STOP.
    pub stopped: u64,
    pub open_approvals: u64,
    pub oldest_approval: Option<Timestamp>,
    pub tools: Vec<ToolTrouble>,
    pub budgets: Vec<BudgetNearLimit>,
    /// Savings of the day, with their time range; none where they could not be read.
    pub saved: Option<(RefusalSavings, Timestamp, Timestamp)>,
    /// Duration of the slowest part's queries, in milliseconds.
    pub database_ms: u64,
    /// Requested parts that could not be read, each with its problem.
    pub unavailable: Vec<(FleetPart, String)>,
}
