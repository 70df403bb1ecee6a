//! Unambiguous dates and times: a four-digit year first, or a month in letters. `01/02/2026` could be two days and
//! stays.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, Utc};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The day as `2026-11-20`; of an instant in its own zone.
pub(super) fn day(text: &str) -> Option<String> {
    let (day, _) = read(text)?;
    Some(day.format("%Y-%m-%d").to_string())
}

/// The instant as `2026-11-20T08:00:00Z`, with its fraction, if any; a day is its beginning.
pub(super) fn instant(text: &str) -> Option<String> {
    let (day, time) = read(text)?;
    let (time, zone) = time.unwrap_or_default();
    let utc = NaiveDateTime::new(day, time).checked_sub_signed(zone)?;
    let utc: DateTime<Utc> = (0..=9_999).contains(&utc.year()).then(|| utc.and_utc())?;
    Some(utc.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// The time of a day, and its zone's offset from UTC.
type Time = (NaiveTime, TimeDelta);

fn read(text: &str) -> Option<(NaiveDate, Option<Time>)> {
    let text = text.trim();
    // `20261120T080000Z`
    if let Some((day, time)) = text.split_once(['T', 't'])
        && digits(day, 8)
        && !time.contains(':')
    {
        let at = time.find(|c: char| !c.is_ascii_digit()).unwrap_or(time.len());
        let (clock, zone) = time.split_at(at);
        let clock = digits(clock, 6).then(|| format!("{}:{}:{}", &clock[..2], &clock[2..4], &clock[4..]))?;
        return Some((calendar_day(day)?, Some(time_of_day(&format!("{clock}{zone}"))?)));
    }
    let Some(colon) = text.find(':') else { return Some((calendar_day(text)?, None)) };
    let before = text[..colon].trim_end_matches(|c: char| c.is_ascii_digit());
    let time = time_of_day(&text[before.len()..])?;
    let day = before.strip_suffix(['T', 't', ' '])?;
    Some((calendar_day(day.trim_end().trim_end_matches(','))?, Some(time)))
}

fn calendar_day(text: &str) -> Option<NaiveDate> {
    if digits(text, 8) {
        return ymd(&text[..4], &text[4..6], &text[6..]);
    }
    for separator in ['-', '/', '.'] {
        let parts: Vec<&str> = text.split(separator).collect();
        if let [year, month, day] = parts[..]
            && let Some(found) = ymd(year, month, day)
        {
            return Some(found);
        }
    }
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split([' ', ',', '-']).filter(|word| !word.is_empty()).collect();
    let (weekday, words) = match words[..] {
        [weekday, a, b, c] => (Some(find_name(&DAYS, weekday)?), [a, b, c]),
        [a, b, c] => (None, [a, b, c]),
        _ => return None,
    };
    let month = |word: &str| find_name(&MONTHS, word).map(|at| (at + 1).to_string());
    let ordinal = |word: &str| {
        let bare = ["st", "nd", "rd", "th", "."].iter().find_map(|suffix| word.strip_suffix(suffix));
        bare.unwrap_or(word).to_owned()
    };
    let found = match words {
        [day, name, year] if month(name).is_some() => ymd(year, &month(name)?, &ordinal(day)),
        [name, day, year] if day.len() < 5 && digits(year, 4) => ymd(year, &month(name)?, &ordinal(day)),
        _ => None,
    }
    .or_else(|| ymd(words[0], &month(words[1])?, words[2]))?;
    // A weekday that is another one leaves a doubt.
    weekday.is_none_or(|at| found.weekday().num_days_from_monday() as usize == at).then_some(found)
}

/// The index of a name, whole or by its first letters: three, or `sept`.
fn find_name(names: &[&str], word: &str) -> Option<usize> {
    let word = word.strip_suffix('.').unwrap_or(word);
    names.iter().position(|name| *name == word || (matches!(word.len(), 3 | 4) && name.starts_with(word)))
}

/// A four-digit year, a month and a day of one or two digits.
fn ymd(year: &str, month: &str, day: &str) -> Option<NaiveDate> {
    let short = |text: &str| digits(text, 1) || digits(text, 2);
    if !digits(year, 4) || !short(month) || !short(day) {
        return None;
    }
    NaiveDate::from_ymd_opt(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
}

fn digits(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `08:00`, `08:00:00.5`, with `Z`, `UTC`, `GMT`, `+01:00`, `+0100`, `+01` or no zone.
fn time_of_day(text: &str) -> Option<Time> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(text.len());
    let (clock, zone) = text.split_at(end);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let (hour, minute, second) = match parts[..] {
        [hour, minute] if fraction == "0" => (hour, minute, "00"),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let is_hour = digits(hour, 2) || digits(hour, 1);
    // More than nanoseconds would be lost.
    let fits = is_hour && digits(minute, 2) && digits(second, 2) && (1..=9).contains(&fraction.len());
    if !fits || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    let time = NaiveTime::from_hms_nano_opt(hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?, nanos)?;
    Some((time, zone_of(zone.trim())?))
}

fn zone_of(text: &str) -> Option<TimeDelta> {
    if matches!(text, "" | "Z" | "z" | "UTC" | "GMT") {
        return Some(TimeDelta::zero());
    }
    let (sign, rest) = match text.strip_prefix('+') {
        Some(rest) => (1, rest),
        None => (-1, text.strip_prefix('-')?),
    };
    let (hours, minutes) = match rest.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if digits(rest, 4) => rest.split_at(2),
        None => (rest, "00"),
    };
    if !digits(hours, 2) || !digits(minutes, 2) {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours <= 23 && minutes <= 59).then(|| TimeDelta::minutes(sign * (hours * 60 + minutes)))
}
