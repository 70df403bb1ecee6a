//! The database's time, carried forward on the monotonic clock between two answers that tell it: replicas whose clocks
//! differ agree on leases.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use tokio::time::Instant;

use callgate_core::domain::time::Timestamp;

/// An answer is never as old as that, in milliseconds: what lies further back was set back.
const LATE_MAX_MS: i64 = 10_000;
/// Answers in a row that have to say so: one may have waited for a writer that was stopped.
const ANSWERS: u32 = 3;

#[derive(Debug)]
pub(super) struct DbTime {
    known: Mutex<Known>,
    /// Milliseconds that a test has let pass.
    skipped_ms: AtomicU64,
}

#[derive(Debug)]
struct Known {
    said: Timestamp,
    at: Instant,
    /// How many answers in a row were further back than an answer can be.
    behind: u32,
}

impl Known {
    fn now(&self) -> Timestamp {
        self.said.plus_ms(u64::try_from(self.at.elapsed().as_millis()).unwrap_or(0))
    }
}

impl DbTime {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { known: Mutex::new(Known { said: now, at: Instant::now(), behind: 0 }), skipped_ms: AtomicU64::new(0) }
    }

    /// Takes in what the database said just now. An answer took its time to come, so it does not set the clock back;
    /// but a clock that was wrong and is right again is followed.
    pub(super) fn observe(&self, now: Timestamp) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let carried = known.now();
        let ahead_ms = carried.as_millis() - now.as_millis();
        let behind = if ahead_ms > LATE_MAX_MS { known.behind + 1 } else { 0 };
        if behind >= ANSWERS {
            tracing::warn!(back_ms = ahead_ms, "the database's clock was set back; its time is taken over");
            *known = Known { said: now, at: Instant::now(), behind: 0 };
        } else {
            *known = Known { said: now.max(carried), at: Instant::now(), behind };
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).now();
        known.plus_ms(self.skipped_ms.load(Ordering::Relaxed))
    }

    pub(super) fn skip(&self, ms: u64) {
        self.skipped_ms.fetch_add(ms, Ordering::Relaxed);
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
}
