//! The only place that asks what time it is.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use callgate_core::domain::time::Timestamp;

/// Where time comes from: the machine, or a test.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clocks.
    System,
    /// A time that stands still until it is moved.
    Fake(std::sync::Arc<std::sync::atomic::AtomicI64>),
}

/// A point on a clock that never goes back, for measuring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(Duration);

/// What happens often and is said now and then: a line for each time would be one more thing to do while there is too
/// much to do.
#[derive(Debug, Default)]
pub struct Seldom {
    said: Option<Tick>,
    kept: u64,
}

impl Seldom {
    /// Between two times that it is said.
    pub const EVERY: Duration = Duration::from_secs(10);

    /// It happened: how often since it was said last, this time included, if it is to be said now.
    pub fn happened(&mut self, clock: &Clock) -> Option<u64> {
        self.kept += 1;
        if self.said.is_some_and(|said| clock.elapsed(said) < Self::EVERY) {
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

    /// Moves a fake clock; a real one moves by itself.
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

    /// A point for measuring how long something took.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn tick(&self) -> Tick {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        match self {
            Self::System => Tick(Instant::now().saturating_duration_since(*START)),
            Self::Fake(_) => Tick(Duration::from_millis(u64::try_from(self.now().as_millis()).unwrap_or(0))),
        }
    }

    /// How long ago `tick` was.
    #[must_use]
    pub fn elapsed(&self, tick: Tick) -> Duration {
        self.tick().0.saturating_sub(tick.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_at_once_and_then_seldom() {
        let (clock, mut seldom) = (Clock::fake(Timestamp::from_millis(0)), Seldom::default());
        let said: Vec<Option<u64>> = (0..5)
            .map(|_| {
                clock.advance(4_000);
                seldom.happened(&clock)
            })
            .collect();
        assert_eq!(said, [Some(1), None, None, Some(3), None], "nothing of it is lost");
    }
}
