//! Conversions between Protobuf's times and milliseconds. A duration is rounded up, so that no wait is cut short.

use prost_types::{Duration, Timestamp};

/// The message for a point in time, from milliseconds since the Unix epoch.
#[must_use]
pub fn timestamp(unix_ms: i64) -> Timestamp {
    let nanos = i32::try_from(unix_ms.rem_euclid(1_000)).unwrap_or(0) * 1_000_000;
    Timestamp { seconds: unix_ms.div_euclid(1_000), nanos }
}

/// The message for a duration, from milliseconds.
#[must_use]
pub fn duration(millis: u64) -> Duration {
    let nanos = i32::try_from(millis % 1_000).unwrap_or(0) * 1_000_000;
    Duration { seconds: i64::try_from(millis / 1_000).unwrap_or(i64::MAX), nanos }
}

/// Milliseconds since the Unix epoch; 0 without a message.
#[must_use]
pub fn unix_ms(at: Option<&Timestamp>) -> i64 {
    at.map_or(0, |at| at.seconds.saturating_mul(1_000).saturating_add(i64::from(at.nanos / 1_000_000)))
}

/// Whole milliseconds of a duration, rounded up; 0 without a message and for a negative duration.
#[must_use]
pub fn millis(duration: Option<&Duration>) -> u64 {
    let whole = |duration: &Duration| {
        let nanos = i128::from(duration.seconds) * 1_000_000_000 + i128::from(duration.nanos);
        u64::try_from(nanos.max(0).unsigned_abs().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    };
    duration.map_or(0, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_the_epoch_or_within_a_millisecond_keeps_its_order() {
        let before = timestamp(-1);
        assert_eq!((before.seconds, before.nanos), (-1, 999_000_000));
        assert_eq!(millis(Some(&Duration { seconds: 1, nanos: 1 })), 1_001, "a wait is never cut short");
        assert_eq!(millis(Some(&duration(u64::MAX))), u64::MAX);
        assert_eq!(millis(Some(&Duration { seconds: -1, nanos: 0 })), 0);
    }
}
