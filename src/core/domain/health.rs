//! Health of a tool across all sessions of a tenant: failure streak, circuit breaker, retry budget. A replica sees its
//! own calls at once, those of others within two seconds.

use super::{
    failure::FailureKind,
    ids::{TenantId, ToolName},
    profile::{Circumstances, ToolState},
    time::Timestamp,
};

/// Maximum failure streak that is still ignored (docs/learning.md#failures-and-follow-ups).
pub const FAILURES_FEW: u32 = 2;
/// Duration of a failure streak after which a tool counts as down, in milliseconds
/// (docs/learning.md#failures-and-follow-ups).
pub const DOWN_AFTER_MS: u64 = 60_000;
/// Half-life of the share of failed calls, in milliseconds (docs/learning.md#the-logistic-layer).
const SHARE_HALF_LIFE_MS: f64 = 120_000.0;
/// Time after which an open circuit without a probe is dropped, in milliseconds.
const COOLDOWN_FORGOTTEN_MS: u64 = 600_000;
/// Lease of a half-open circuit's probe call, in milliseconds.
pub const PROBE_CALL_MS: u64 = 30_000;
/// Maximum lease of an exploratory retry, in milliseconds.
const PROBE_MS: u64 = 600_000;

/// Retry budget of a tool across all sessions: a share of its calls, plus a constant rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryAllowance {
    /// Retries per permitted call.
    pub share: f64,
    /// Retries per minute.
    pub per_minute: f64,
    /// Capacity of the budget, and its initial value.
    pub max: f64,
}

impl Default for RetryAllowance {
    fn default() -> Self {
        Self { share: 0.2, per_minute: 10.0, max: 100.0 }
    }
}

/// Open circuit of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooldown {
    /// Failure kind that opened it.
    pub failure: FailureKind,
    /// Time of that report.
    pub since: Timestamp,
    /// End of the open state. The circuit is then half-open: one probe call at a time, until one succeeds.
    pub until: Timestamp,
    /// Lease of the current probe.
    pub probe_until: Option<Timestamp>,
}

/// Health of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Health {
    /// Transient failures since its last success.
    pub failures: u32,
    /// Time of the first of them.
    pub failing_since: Option<Timestamp>,
    /// The circuit, until a call succeeds.
    pub cooldown: Option<Cooldown>,
    /// Retry budget spent and not yet refilled.
    pub retries_used: f64,
    /// Time of that amount.
    pub used_at: Timestamp,
    share: DecayedCounts,
    probing: Vec<(FailureKind, Timestamp)>,
}

/// Calls and failures of the last minutes, decayed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct DecayedCounts {
    calls: f64,
    failures: f64,
    at: Timestamp,
}

/// Observations of one replica since it last published.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthObservations {
    pub tenant: TenantId,
    pub tool: ToolName,
    /// Permit of its last call that succeeded.
    pub succeeded_at: Option<Timestamp>,
    /// Transient failures since then.
    pub failures: u32,
    /// The first of them.
    pub failing_since: Option<Timestamp>,
    /// A circuit opened since then.
    pub cooldown: Option<Cooldown>,
    /// Retries advised, less the refill by calls.
    pub retries: f64,
}

/// Health of a tool as published by all replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthRow {
    pub tenant: TenantId,
    pub tool: ToolName,
    /// Transient failures since its last success.
    pub failures: u32,
    /// The first of them.
    pub failing_since: Option<Timestamp>,
    pub cooldown: Option<Cooldown>,
    /// Retry budget spent and not yet refilled.
    pub retries_used: f64,
    /// Time of that amount.
    pub used_at: Timestamp,
    /// When the row changed.
    pub changed_at: Timestamp,
}

/// A report as seen by the health of its tool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// When it was reported.
    pub at: Timestamp,
    /// When its call was permitted.
    pub sent_at: Timestamp,
    /// Failure kind; none for a success.
    pub failure: Option<FailureKind>,
    /// Duration for which the circuit opens, in milliseconds.
    pub cooldown_ms: Option<u64>,
    /// A retry was advised.
    pub retry_told: bool,
    /// An exploratory retry was advised, against the estimate.
    pub probe_told: bool,
    /// For an exploratory retry: the kind of the failure before it.
    pub probe_of: Option<FailureKind>,
}

impl Health {
    /// State of the tool at `now`.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> ToolState {
        match self.failing_since {
            Some(since) if self.failures > FAILURES_FEW && now.since_ms(since) >= DOWN_AFTER_MS => ToolState::Down,
            Some(_) if self.failures > FAILURES_FEW => ToolState::Failing,
            _ => ToolState::Working,
        }
    }

    /// Duration of the failure streak, in milliseconds; 0 without one.
    #[must_use]
    pub fn failing_ms(&self, now: Timestamp) -> u64 {
        self.failing_since.map_or(0, |since| now.since_ms(since))
    }

    /// Share of failed calls in the last minutes, 0 to 1; without calls, a fifth.
    #[must_use]
    pub fn failure_share(&self, now: Timestamp) -> f64 {
        let fade = self.share.fade(now);
        (self.share.failures * fade + 0.2) / (self.share.calls * fade + 1.0)
    }

    /// The circumstances that a failure at `now` is recorded with.
    #[must_use]
    pub fn circumstances(&self, now: Timestamp) -> Circumstances {
        Circumstances {
            tool: self.state(now),
            failure_share: self.failure_share(now) as f32,
            failures: self.failures,
            failing_ms: self.failing_ms(now),
        }
    }

    /// The circuit, unless closed.
    #[must_use]
    pub fn cooldown(&self, now: Timestamp) -> Option<Cooldown> {
        self.cooldown.filter(|cooldown| now.since_ms(cooldown.until) < COOLDOWN_FORGOTTEN_MS)
    }

    /// True while the retry budget is not exhausted.
    #[must_use]
    pub fn may_retry(&self, allowance: &RetryAllowance, now: Timestamp) -> bool {
        self.count_retries_used(allowance, now) + 1.0 <= allowance.max
    }

    /// True when no exploratory retry after such a failure is in flight.
    #[must_use]
    pub fn may_probe(&self, kind: FailureKind, now: Timestamp) -> bool {
        !self.probing.iter().any(|(probed, until)| *probed == kind && now < *until)
    }

    /// Merges the state published by all replicas.
    pub fn merge_row(&mut self, row: &HealthRow) {
        self.failures = row.failures;
        self.failing_since = row.failing_since;
        self.cooldown = row.cooldown;
        self.retries_used = row.retries_used;
        self.used_at = row.used_at;
    }

    /// Records a permitted call.
    pub fn record_call(&mut self, allowance: &RetryAllowance, now: Timestamp) {
        self.retries_used = (self.count_retries_used(allowance, now) - allowance.share).max(0.0);
        self.used_at = self.used_at.max(now);
    }

    /// Takes the half-open circuit's probe lease until `until`; `None` returns it.
    pub fn set_probe_lease(&mut self, until: Option<Timestamp>) {
        if let Some(cooldown) = self.cooldown.as_mut() {
            cooldown.probe_until = until;
        }
    }

    /// True when the next call would be the probe of a half-open circuit.
    #[must_use]
    pub fn is_to_be_probed(&self, now: Timestamp) -> bool {
        let free = |cooldown: &Cooldown| cooldown.probe_until.is_none_or(|until| until <= now);
        self.cooldown(now).is_some_and(|cooldown| cooldown.until <= now && free(&cooldown))
    }

    /// Records a report.
    pub fn record_report(&mut self, seen: &Observation, allowance: &RetryAllowance) {
        let passing = seen.failure.is_some_and(FailureKind::may_pass);
        let fade = self.share.fade(seen.at);
        self.share = DecayedCounts {
            calls: self.share.calls * fade + 1.0,
            failures: self.share.failures * fade + f64::from(u8::from(passing)),
            at: seen.at,
        };
        if seen.failure.is_none() {
            (self.failures, self.failing_since) = (0, None);
            // A call that was sent before the failure says nothing about the time after it.
            self.cooldown = self.cooldown.filter(|cooldown| seen.sent_at <= cooldown.since);
        } else if passing {
            self.failures = self.failures.saturating_add(1);
            self.failing_since = Some(self.failing_since.unwrap_or(seen.at));
        }
        if let Some(kind) = seen.probe_of {
            self.probing.retain(|(probed, _)| *probed != kind);
        }
        if let Some((failure, ms)) = seen.failure.zip(seen.cooldown_ms) {
            let until = self.cooldown.map_or(Timestamp::default(), |cooldown| cooldown.until);
            let until = until.max(seen.at.plus_ms(ms));
            self.cooldown = Some(Cooldown { failure, since: seen.at, until, probe_until: None });
        }
        if seen.retry_told {
            self.retries_used = self.count_retries_used(allowance, seen.at) + 1.0;
            self.used_at = self.used_at.max(seen.at);
        }
        if let Some(kind) = seen.failure.filter(|_| seen.probe_told) {
            self.probing.retain(|(probed, _)| *probed != kind);
            self.probing.push((kind, seen.at.plus_ms(PROBE_MS)));
        }
    }

    fn count_retries_used(&self, allowance: &RetryAllowance, now: Timestamp) -> f64 {
        let earned = now.since_ms(self.used_at) as f64 / 60_000.0 * allowance.per_minute;
        (self.retries_used - earned).max(0.0)
    }
}

impl DecayedCounts {
    fn fade(&self, now: Timestamp) -> f64 {
        (-(now.since_ms(self.at) as f64) / SHARE_HALF_LIFE_MS).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn observe_at(seconds: i64, failure: Option<FailureKind>) -> Observation {
        let at = at(seconds);
        Observation {
            at,
            sent_at: at,
            failure,
            cooldown_ms: None,
            retry_told: false,
            probe_told: false,
            probe_of: None,
        }
    }

    #[test]
    fn three_failures_in_a_row_are_failing_and_a_minute_of_them_is_down() {
        let (mut health, allowance) = (Health::default(), RetryAllowance::default());
        let states = [0, 1, 2, 30, 61].map(|second| {
            health.record_report(&observe_at(second, Some(FailureKind::Timeout)), &allowance);
            health.state(at(second))
        });
        use ToolState::{Down, Failing, Working};
        assert_eq!(states, [Working, Working, Failing, Failing, Down]);
        health.record_report(&observe_at(62, Some(FailureKind::InvalidArgument)), &allowance);
        assert_eq!(health.state(at(62)), Down, "what the caller did wrong says nothing about the tool");
        health.record_report(&observe_at(63, None), &allowance);
        assert_eq!(health, Health { share: health.share, ..Health::default() });
    }

    #[test]
    fn retries_are_a_share_of_the_calls_and_some_a_minute() {
        let allowance = RetryAllowance { share: 0.5, per_minute: 6.0, max: 2.0 };
        let mut health = Health::default();
        let told = Observation { retry_told: true, ..observe_at(0, Some(FailureKind::Timeout)) };
        let given = (0..5).filter(|_| {
            let may = health.may_retry(&allowance, at(0));
            health.record_report(&Observation { retry_told: may, ..told }, &allowance);
            may
        });
        assert_eq!(given.count(), 2);
        assert!(!health.may_retry(&allowance, at(9)) && health.may_retry(&allowance, at(10)));
        health.record_call(&allowance, at(0));
        health.record_call(&allowance, at(0));
        assert!(health.may_retry(&allowance, at(0)), "two calls earn one retry");
    }

    #[test]
    fn a_cooldown_ends_with_a_success_and_not_with_time_alone() {
        let (mut health, allowance) = (Health::default(), RetryAllowance::default());
        let failed = Observation { cooldown_ms: Some(5_000), ..observe_at(10, Some(FailureKind::RateLimited)) };
        health.record_report(&failed, &allowance);
        assert_eq!(health.cooldown(at(16)).map(|cooldown| cooldown.until), Some(at(15)));
        health.record_report(&Observation { sent_at: at(9), ..observe_at(16, None) }, &allowance);
        assert!(health.cooldown(at(17)).is_some(), "it was in flight when the tool failed");
        health.record_report(&observe_at(17, None), &allowance);
        assert_eq!(health.cooldown(at(17)), None);
        health.record_report(&failed, &allowance);
        assert_eq!(health.cooldown(at(700)), None, "nobody has asked for ten minutes");
    }
}
