//! Days and instants in the forms that leave no doubt: the order of day and month is never guessed.

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, Utc};

/// Forms of a day; those with a month in letters are clear in any order.
const DAYS: [&str; 9] =
    ["%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y"];
/// Forms of an instant without a zone.
const INSTANTS: [&str; 6] = [
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
];

/// The day as `2026-11-20`; that of an instant in its own zone.
pub(super) fn day(text: &str) -> Option<String> {
    let text = text.trim();
    let zoned = || DateTime::parse_from_rfc3339(text).ok().map(|at| at.date_naive());
    let plain = || INSTANTS.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok()).map(|at| at.date());
    let found = a_day(text).or_else(zoned).or_else(plain)?;
    Some(found.format("%Y-%m-%d").to_string())
}

fn a_day(text: &str) -> Option<NaiveDate> {
    DAYS.iter().find_map(|form| NaiveDate::parse_from_str(text, form).ok())
}

/// The instant as `2026-11-20T08:00:00Z`, with a fraction where there is one; a day is its beginning.
pub(super) fn instant(text: &str) -> Option<String> {
    let text = text.trim();
    let zoned = DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%:z"))
        .or_else(|_| DateTime::parse_from_rfc2822(text))
        .map(|at| at.with_timezone(&Utc));
    let plain = || INSTANTS.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    let midnight = || a_day(text)?.and_hms_opt(0, 0, 0);
    let found = zoned.ok().or_else(|| plain().or_else(midnight).map(|at| at.and_utc()))?;
    Some(found.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}
