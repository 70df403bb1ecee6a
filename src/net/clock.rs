//! Clock: the only module that reads the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use callgate_core::domain::time::Timestamp;

/// Source of time: the machine, or a test.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clocks.
    System,
    /// A time that only [`Clock::advance`] moves.
    Fake(std::sync::Arc<std::sync::atomic::AtomicI64>),
}

/// A point on the monotonic clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(Duration);

/// Rate limiter of a log line about a frequent event.
#[derive(Debug, Default)]
pub struct LogLimiter {
    said: Option<Tick>,
    kept: u64,
}

impl LogLimiter {
    /// Minimum interval of the line.
    pub const EVERY: Duration = Duration::from_secs(10);

    /// Counts an event; returns the count since the last line if it is to be logged now.
    pub fn count_event(&mut self, clock: &Clock) -> Option<u64> {
        self.kept += 1;
        if self.said.is_some_and(|said| clock.elapsed_since(said) < Self::EVERY) {
            return None;
        }
        self.said = Some(clock.tick());
        Some(std::mem::take(&mut self.kept))
    }
}

impl Clock {
    /// A fake clock that stands at `now`.
    #[must_use]
    pub fn fake(now: Timestamp) -> Self {
        Self::Fake(std::sync::Arc::new(now.as_millis().into()))
    }

    /// Advances a fake clock; no effect on the system's.
    pub fn advance(&self, millis: u64) {
        if let Self::Fake(now) = self {
            let millis = i64::try_from(millis).unwrap_or(i64::MAX);
            now.fetch_add(millis, std::sync::atomic::Ordering::SeqCst);
        }
    }

    /// The time of day.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Fake(now) => Timestamp::from_millis(now.load(std::sync::atomic::Ordering::SeqCst)),
        }
    }

    /// The monotonic time, for measuring durations.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn tick(&self) -> Tick {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        match self {
            Self::System => Tick(Instant::now().saturating_duration_since(*START)),
            Self::Fake(_) => Tick(Duration::from_millis(u64::try_from(self.now().as_millis()).unwrap_or(0))),
        }
    }

    /// The time since `tick`.
    #[must_use]
    pub fn elapsed_since(&self, tick: Tick) -> Duration {
        self.tick().0.saturating_sub(tick.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_event_is_logged_at_once_and_then_rarely() {
        let (clock, mut seldom) = (Clock::fake(Timestamp::from_millis(0)), LogLimiter::default());
        let said: Vec<Option<u64>> = (0..5)
            .map(|_| {
                clock.advance(4_000);
                seldom.count_event(&clock)
            })
            .collect();
        assert_eq!(said, [Some(1), None, None, Some(3), None], "nothing of it is lost");
    }
}
