//! Points in time, passed as arguments: the pure modules read no clock.

use std::fmt;

use chrono::{DateTime, SecondsFormat};

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

const DAY_MS: i64 = 86_400_000;

impl Timestamp {
    /// The point `millis` after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This point, `millis` later.
    #[must_use]
    pub const fn plus_ms(self, millis: u64) -> Self {
        Self(self.0.saturating_add_unsigned(millis))
    }

    /// Milliseconds since `earlier`; 0 when `earlier` lies in the future.
    #[must_use]
    pub fn since_ms(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// The time truncated to whole seconds.
    #[must_use]
    pub const fn second(self) -> Self {
        Self(self.0.div_euclid(1_000) * 1_000)
    }

    /// Days since the Unix epoch, in UTC: the key of daily counts.
    #[must_use]
    pub const fn day(self) -> i32 {
        (self.0.div_euclid(DAY_MS)) as i32
    }

    /// The first instant of the next UTC day.
    #[must_use]
    pub const fn next_day(self) -> Self {
        Self((self.0.div_euclid(DAY_MS) + 1) * DAY_MS)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339, in UTC and whole seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = DateTime::from_timestamp_millis(self.0).unwrap_or_default();
        f.write_str(&at.to_rfc3339_opts(SecondsFormat::Secs, true))
    }
}

/// A duration for people and models: `1.5 s`, `40 s`, `3 min`.
#[must_use]
pub fn wait_in_words(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..9_900 if !millis.is_multiple_of(1_000) => {
            let tenths = millis.div_ceil(100);
            format!("{}.{} s", tenths / 10, tenths % 10)
        }
        1_000..120_000 => format!("{} s", millis.div_ceil(1_000)),
        120_000..7_200_000 => format!("{} min", millis.div_ceil(60_000)),
        _ => format!("{} h", millis.div_ceil(3_600_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_count_from_the_epoch_in_both_directions() {
        assert_eq!(Timestamp::from_millis(0).day(), 0);
        assert_eq!(Timestamp::from_millis(DAY_MS - 1).day(), 0);
        assert_eq!(Timestamp::from_millis(-1).day(), -1);
        assert_eq!(Timestamp::from_millis(5).next_day(), Timestamp::from_millis(DAY_MS));
    }

    #[test]
    fn waits_are_never_said_shorter_than_they_are() {
        assert_eq!(wait_in_words(999), "999 ms");
        assert_eq!(wait_in_words(1_500), "1.5 s");
        assert_eq!(wait_in_words(1_064), "1.1 s");
        assert_eq!(wait_in_words(1_999), "2.0 s");
        assert_eq!(wait_in_words(30_001), "31 s");
        assert_eq!(wait_in_words(121_000), "3 min");
    }
}
