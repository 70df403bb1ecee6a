//! Times in the formats that tool results use.

use chrono::DateTime;

use super::vocabulary::Label;
use crate::domain::time::Timestamp;

/// Seconds, milliseconds, microseconds or nanoseconds since the epoch, between 2001 and 2100.
pub(super) fn time_of(value: f64) -> Option<Timestamp> {
    const FROM: f64 = 978_307_200.0;
    const TO: f64 = 4_102_444_800.0;
    let scale = [1.0, 1e3, 1e6, 1e9].into_iter().find(|scale| (FROM..TO).contains(&(value / scale)))?;
    Some(Timestamp::from_millis((value / scale * 1_000.0) as i64))
}

/// The time that a text as a whole denotes; digits alone need a label of a time.
pub(super) fn parse_time(text: &str, label: Label) -> Option<Timestamp> {
    if !(10..=40).contains(&text.len()) || !text.is_ascii() {
        return None;
    }
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_number {
        return time_of(text.parse().ok()?).filter(|_| matches!(label, Label::Time { .. }) && text.len() != 17);
    }
    let has_time = text.contains(':') && text.contains(|c: char| c.is_ascii_digit());
    let parsed = || {
        let rfc3339 = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_str(text, "%+"));
        let offset = || DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f%z");
        let utc = || DateTime::parse_from_str(&format!("{}Z", text.replace(' ', "T")), "%+");
        rfc3339.or_else(|_| offset()).or_else(|_| DateTime::parse_from_rfc2822(text)).or_else(|_| utc()).ok()
    };
    let at = has_time.then(parsed).flatten()?;
    Some(Timestamp::from_millis(at.timestamp_millis()))
}
