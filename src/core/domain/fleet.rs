//! A fleet at a glance.

use super::{
    budget::{Budgets, Dimension, Scope},
    failure::FailureKind,
    finding::Decision,
    time::Timestamp,
};

/// A minute, in milliseconds.
pub const MINUTE_MS: i64 = 60_000;

/// Judgements, by decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decided([u64; Decision::ALL.len()]);

impl Decided {
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

/// A question to a person, as far as it matters when it was open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The session that waits for the answer.
    pub session: String,
    pub at: Timestamp,
    /// When it is over: answered, taken back or expired.
    pub until: Timestamp,
}

impl Asked {
    /// Was it open then?
    #[must_use]
    pub fn is_open(&self, at: Timestamp) -> bool {
        self.at <= at && at < self.until
    }
}

/// Calls that run, and who made one lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calling {
    /// Permits without an outcome.
    pub open_calls: u64,
    /// Call trees with one.
    pub trees: u64,
    /// Call trees that were heard of within the last hour.
    pub active_trees: u64,
}

/// What is wrong with a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolTrouble {
    pub tool: String,
    /// Failures in a row that may pass by themselves.
    pub failures: u32,
    /// Since the first of them.
    pub failing_since: Option<Timestamp>,
    /// Why everybody leaves it alone, and until when.
    pub cooldown: Option<(FailureKind, Timestamp)>,
}

/// A budget that is nearly used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUsed {
    pub scope: Scope,
    /// The agent or the root session; empty for the tenant.
    pub name: String,
    pub dimension: Dimension,
    pub used: u64,
    pub limit: u64,
}

/// The share of a limit that is used once it is near its end, in percent.
pub const NEAR_PERCENT: u64 = 80;

/// The limits that many sessions share, of the given scopes.
#[must_use]
pub fn shared_limits(budgets: &Budgets, scopes: &[Scope]) -> Vec<(Scope, Dimension, u64)> {
    let of = |scope: &Scope| {
        let scope = *scope;
        budgets.of(scope).iter().filter(|(dimension, _)| dimension.is_shared()).map(move |(d, limit)| (scope, d, limit))
    };
    scopes.iter().flat_map(of).collect()
}

/// What refusals have saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Saved {
    /// Answered from memory.
    pub reused: u64,
    pub denied: u64,
    pub stopped: u64,
    /// Of those answered from memory: how many repeat a call whose cost is known, and that.
    pub priced: u64,
    pub cost_micros: u64,
    /// The same of tokens.
    pub with_tokens: u64,
    pub tokens: u64,
}

impl Saved {
    /// Both together.
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

/// A minute of a fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Minute {
    pub start: Timestamp,
    /// Of the one that has only begun: now.
    pub end: Timestamp,
    pub decided: Decided,
    /// Questions that were open at its end.
    pub open_approvals: u64,
    /// Sessions that waited for one of them.
    pub held: u64,
    /// When the oldest of them was asked.
    pub oldest_approval: Option<Timestamp>,
    /// Sessions that had been told STOP within the hour before its end, and nothing else since.
    pub stopped: u64,
    /// Halts that held at its end.
    pub halts: u64,
    /// What refusals saved within it; none where that is not counted yet.
    pub saved: Option<Saved>,
    /// What this server saw in it; none where it did not look.
    pub seen: Seen,
}

/// What one server saw of a fleet within a minute. It is in no row, so that nothing is known of a minute in which the
/// server did not run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The most tools that were left alone at once.
    pub cooling: Option<u64>,
    /// Budgets that were near their end, when it counted them.
    pub near_budgets: Option<u64>,
    /// How it was itself.
    pub plane: Option<PlaneMinute>,
}

/// How a server was within a minute, at its worst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneMinute {
    /// Evaluates that it judged at once, and that waited for their turn.
    pub judging: u64,
    pub waiting: u64,
    /// Changes that waited for a commit.
    pub uncommitted: u64,
    /// The slowest answer of the database to a small question, in milliseconds; none where there was no answer.
    pub database_ms: Option<u64>,
    /// Such questions to which it gave no answer.
    pub unanswered: u64,
}

/// A time for which something held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: Timestamp,
    /// None while it holds.
    pub until: Option<Timestamp>,
}

impl Span {
    /// Did it hold then?
    #[must_use]
    pub fn covers(&self, at: Timestamp) -> bool {
        self.from <= at && self.until.is_none_or(|until| at < until)
    }
}

/// A fleet at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fleet {
    pub at: Timestamp,
    /// The last hour, the oldest first.
    pub minutes: Vec<Minute>,
    /// The last minute up to this moment.
    pub lately: Decided,
    pub calling: Calling,
    /// Sessions that wait for a person.
    pub held: u64,
    /// Sessions that were told STOP within the last hour, and nothing else since.
    pub stopped: u64,
    pub open_approvals: u64,
    pub oldest_approval: Option<Timestamp>,
    pub tools: Vec<ToolTrouble>,
    pub budgets: Vec<BudgetUsed>,
    pub saved: Saved,
    /// What was saved is counted from then, until then.
    pub saved_from: Timestamp,
    pub saved_until: Timestamp,
    /// How long the database took, in milliseconds.
    pub database_ms: u64,
}
