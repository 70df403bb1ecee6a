//! Conversion of times: Protobuf's own types outside, milliseconds inside. A wait is never rounded down.

use std::ops::RangeInclusive;

use super::{
    decode::{DecodeResult, decode_in_range, wrong},
    limits::UNIX_MS_MAX,
};
use callgate_core::domain::time::Timestamp;
use callgate_proto::time::{millis, unix_ms};

/// A point in time, as a message.
#[must_use]
pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    callgate_proto::time::timestamp(at.as_millis())
}

/// A point in time of a request, from 1970 to the end of 9999: what a calendar of four digits can name.
pub(super) fn point_in_time(field: &str, at: Option<&prost_types::Timestamp>) -> DecodeResult<Timestamp> {
    let Some(at) = at else { return Ok(Timestamp::from_millis(0)) };
    let is_normal = (0..1_000_000_000).contains(&at.nanos);
    match u64::try_from(unix_ms(Some(at))) {
        Ok(millis) if is_normal && millis <= UNIX_MS_MAX => Ok(Timestamp::from_millis(unix_ms(Some(at)))),
        _ => wrong(field, "is no time between 1970-01-01T00:00:00Z and the end of the year 9999"),
    }
}

/// A duration of a request, in milliseconds; none when there is none.
pub(super) fn span(
    field: &str,
    given: Option<&prost_types::Duration>,
    allowed: RangeInclusive<u64>,
) -> DecodeResult<Option<u64>> {
    let Some(given) = given else { return Ok(None) };
    if given.seconds < 0 || !(0..1_000_000_000).contains(&given.nanos) {
        return wrong(field, "is no duration: seconds must not be negative, and nanos be 0 to 999999999");
    }
    match decode_in_range(field, millis(Some(given)), allowed) {
        Ok(millis) => Ok(Some(millis)),
        Err(mut malformed) => {
            malformed.problem.push_str(" (in milliseconds)");
            Err(malformed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_time_is_rejected_by_its_field() {
        for (seconds, nanos) in [(-1, 0), (253_402_300_800, 0), (i64::MAX, 0), (1, -1), (1, 1_000_000_000)] {
            let at = prost_types::Timestamp { seconds, nanos };
            assert_eq!(point_in_time("start_time", Some(&at)).unwrap_err().field, "start_time");
        }
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000), (61, 0), (i64::MAX, 999_999_999)] {
            let given = prost_types::Duration { seconds, nanos };
            assert_eq!(span("max_wait", Some(&given), 0..=60_000).unwrap_err().field, "max_wait");
        }
    }
}
