//! Database clock, extrapolated by the monotonic clock between responses: replicas with different clocks agree on
//! leases.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Store;
use crate::decision_store::DecisionStore as _;
use callgate_core::domain::time::Timestamp;
use callgate_net::clock::Clock;

/// Maximum delay of a response, in milliseconds; a larger difference means the clock was set back.
const LATE_MAX_MS: i64 = 10_000;
/// Number of consecutive responses that confirm it: one may have been delayed by a stopped writer.
const ANSWERS: u32 = 3;
/// Time for which a forward step of the clock delays the expiry of leases: longer than nearly every lease.
const STEP_HELD: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(super) struct DbTime {
    known: Mutex<ClockReading>,
    /// Milliseconds skipped by a test.
    skipped_ms: AtomicU64,
}

#[derive(Debug)]
struct ClockReading {
    said: Timestamp,
    at: Instant,
    /// Number of consecutive responses that are too far back.
    behind: u32,
    /// Time of the last forward step, and the sum of steps in effect, in milliseconds.
    step: Option<(Instant, u64)>,
}

impl ClockReading {
    fn now(&self) -> Timestamp {
        self.said.plus_ms(u64::try_from(self.at.elapsed().as_millis()).unwrap_or(0))
    }

    fn step_ms(&self) -> u64 {
        self.step.filter(|(at, _)| at.elapsed() < STEP_HELD).map_or(0, |(_, ms)| ms)
    }
}

impl DbTime {
    /// Before the first response, the local time: a process started after a step knows no other.
    pub(super) fn new(now: Timestamp) -> Self {
        let known = ClockReading { said: Clock::System.now().min(now), at: Instant::now(), behind: 0, step: None };
        let time = Self { known: Mutex::new(known), skipped_ms: AtomicU64::new(0) };
        time.observe(now);
        time
    }

    /// Adds a response. Its delay never sets the clock back, but a corrected clock is followed.
    pub(super) fn observe(&self, now: Timestamp) {
        let mut known = self.known.lock();
        let carried = known.now();
        let ahead_ms = carried.as_millis() - now.as_millis();
        let behind = if ahead_ms > LATE_MAX_MS { known.behind + 1 } else { 0 };
        if behind >= ANSWERS {
            tracing::warn!(back_ms = ahead_ms, "the database's clock was set back; callgate follows it");
            let step = known.step.map(|(at, ms)| (at, ms.saturating_sub(ahead_ms.unsigned_abs())));
            *known = ClockReading { said: now, at: Instant::now(), behind: 0, step };
            return;
        }
        if ahead_ms < -LATE_MAX_MS {
            let forward_ms = ahead_ms.unsigned_abs();
            tracing::warn!(forward_ms, "the database's clock was stepped forward: leases end later by this time");
            known.step = Some((Instant::now(), known.step_ms().saturating_add(forward_ms)));
        }
        *known = ClockReading { said: now.max(carried), at: Instant::now(), behind, ..*known };
    }

    /// The time for leases: [`Self::now`] less recent forward steps.
    pub(super) fn of_leases(&self) -> Timestamp {
        // The time first: a step between the two ends nothing early.
        let now = self.now();
        let step_ms = self.known.lock().step_ms();
        Timestamp::from_millis(now.as_millis().saturating_sub_unsigned(step_ms))
    }

    pub(super) fn now(&self) -> Timestamp {
        let known = self.known.lock().now();
        known.plus_ms(self.skipped_ms.load(Ordering::Relaxed))
    }

    pub(super) fn skip(&self, ms: u64) {
        self.skipped_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Store {
    /// The extrapolated database time; in memory, that of this process.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.memory.as_ref().map_or_else(|| self.time.now(), |memory| memory.now())
    }

    /// The time for leases: a forward step of the clock expires none early.
    #[must_use]
    pub fn now_of_leases(&self) -> Timestamp {
        self.memory.as_ref().map_or_else(|| self.time.of_leases(), |memory| memory.now_of_leases())
    }

    /// Simulates a forward step of the database's clock, in milliseconds.
    pub fn step(&self, ms: u64) {
        self.time.observe(self.time.now().plus_ms(ms));
    }

    /// Moves [`Self::now`] ahead, in milliseconds, for tests.
    pub fn skip(&self, ms: u64) {
        self.memory.as_ref().map_or_else(|| self.time.skip(ms), |memory| memory.skip(ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAYS: u64 = 2 * 86_400_000;

    fn at(clock: &DbTime, expected: Timestamp) -> bool {
        (0..5_000).contains(&(clock.now().as_millis() - expected.as_millis()))
    }

    #[test]
    fn a_late_answer_does_not_set_the_clock_back() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let clock = DbTime::new(now.plus_ms(9_000));
        (0..10).for_each(|_| clock.observe(now));
        assert!(at(&clock, now.plus_ms(9_000)));
    }

    #[test]
    fn a_clock_that_was_days_ahead_and_is_right_again_is_followed() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let clock = DbTime::new(now);
        clock.observe(now.plus_ms(DAYS));
        assert!(at(&clock, now.plus_ms(DAYS)));
        clock.observe(now);
        assert!(at(&clock, now.plus_ms(DAYS)), "one answer may have been late");
        clock.observe(now);
        clock.observe(now);
        assert!(at(&clock, now), "several in a row are no accident");
    }

    #[test]
    fn a_step_forward_ends_no_lease_before_its_time() {
        let now = Clock::System.now();
        let clock = DbTime::new(now);
        clock.observe(now.plus_ms(9_000));
        assert_eq!(clock.of_leases(), clock.now(), "an answer may come late");
        clock.observe(now.plus_ms(609_000));
        clock.observe(now.plus_ms(1_209_000));
        let held_ms = clock.now().since_ms(clock.of_leases());
        assert!((1_195_000..=1_200_000).contains(&held_ms), "{held_ms}");
        // A process started then sees it by the local clock.
        let started = DbTime::new(now.plus_ms(1_209_000));
        assert!((1_195_000..=1_210_000).contains(&started.now().since_ms(started.of_leases())));
        clock.known.lock().step.as_mut().unwrap().0 -= STEP_HELD;
        assert_eq!(clock.of_leases(), clock.now(), "what began before it is over");
    }

    #[test]
    fn a_step_forward_that_is_taken_back_holds_up_nothing() {
        let now = Clock::System.now();
        let clock = DbTime::new(now);
        clock.observe(now.plus_ms(DAYS));
        (0..3).for_each(|_| clock.observe(now));
        assert_eq!(clock.of_leases(), clock.now());
    }
}
