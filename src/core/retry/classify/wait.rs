//! Retry waits of providers: the `Retry-After` header, and phrases in messages.

use std::sync::LazyLock;

use chrono::NaiveDateTime;
use regex::Regex;

use super::reduce::both_ends;

const IMF_FIXDATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// Maximum bare number that counts as seconds (seven days); a larger one is a point in time or an id.
const MOST_BARE_SECONDS: u64 = 7 * 24 * 60 * 60;

/// The wait in milliseconds of the HTTP header `Retry-After: value` at `now_unix_ms` (milliseconds since 1970):
/// seconds, fractions allowed and rounded up, or an IMF-fixdate. A date in the past is 0. None for other values.
#[must_use]
pub fn retry_after_ms(value: &str, now_unix_ms: i64) -> Option<u64> {
    let value = value.trim();
    if let Some((ms, "")) = number(value, 1000) {
        return Some(ms);
    }
    let at = NaiveDateTime::parse_from_str(value, IMF_FIXDATE).ok()?.and_utc().timestamp_millis();
    Some(u64::try_from(at.saturating_sub(now_unix_ms)).unwrap_or(0))
}

static CUES: LazyLock<Regex> = LazyLock::new(|| {
    let cues = [
        r#"(?i)(?P<ms>retry[ _-]?after[ _-]?ms["']?\s*[:=]?\s*["']?)"#,
        r#"(?P<key>retry[ _-]?(?:after|delay)(?:[ _-]?(?:seconds|secs?))?["']?\s*[:=]?\s*["']?)"#,
        concat!(
            r"(?:try(?: your request)? again|retry(?:ing)?|retried|available(?: again)?|resets?|wait)",
            r"(?: your request| the request)?(?: again)?(?: in| after| for)?",
            r"(?: about| approximately| at least| another)?\s+",
        ),
    ];
    Regex::new(&cues.join("|")).expect("the pattern is fixed and tested")
});

/// The wait in milliseconds in an error's text: "Please try again in 1.2s", "in 6m0s", "retry after 30 seconds",
/// `"retryDelay": "26s"`. The first valid one counts; none without one.
#[must_use]
pub fn retry_after_in_message(message: &str) -> Option<u64> {
    let message = both_ends(message);
    CUES.captures_iter(&message).find_map(|cue| {
        let rest = message.get(cue.get(0)?.end()..)?;
        if cue.name("ms").is_some() {
            return number(rest, 1).map(|(ms, _)| ms);
        }
        duration(rest).or_else(|| if cue.name("key").is_some() { bare_seconds(rest) } else { None })
    })
}

/// A decimal number at the start of `text`, times `scale` and rounded up, and the text behind it.
fn number(text: &str, scale: u64) -> Option<(u64, &str)> {
    let whole_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(whole_end);
    let whole: u64 = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let fraction = rest.strip_prefix('.').map(|after| {
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        after.split_at(end)
    });
    let Some((digits, behind)) = fraction.filter(|(digits, _)| !digits.is_empty()) else {
        return Some((whole, rest));
    };
    // Nine digits are more than a millisecond needs.
    let kept = digits.get(..digits.len().min(9))?;
    let unit = 10_u64.checked_pow(u32::try_from(kept.len()).ok()?)?;
    let part = kept.parse::<u64>().ok()?.checked_mul(scale)?.div_ceil(unit);
    Some((whole.checked_add(part)?, behind))
}

/// A run of numbers with units: `1.2s`, `6m0s`, `1 minute and 30 seconds`.
fn duration(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (None, text);
    loop {
        let next = rest.trim_start_matches([' ', ',']);
        let next = next.strip_prefix("and ").unwrap_or(next);
        let digits = next.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(next.len());
        let behind = next.get(digits..)?.trim_start_matches(' ');
        let letters = behind.find(|c: char| !c.is_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let Some((ms, _)) = unit_ms(unit).and_then(|scale| number(next, scale)) else {
            return total;
        };
        total = Some(total.unwrap_or(0_u64).saturating_add(ms));
        rest = behind;
    }
}

fn unit_ms(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        _ => return None,
    })
}

/// A number that stands alone, as in "retry after 35".
fn bare_seconds(text: &str) -> Option<u64> {
    let (ms, behind) = number(text, 1000)?;
    let glued = behind.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | ':' | '/' | '_'));
    let counts_things = behind.trim_start_matches(' ').starts_with(char::is_alphabetic);
    (!glued && !counts_things && ms <= MOST_BARE_SECONDS * 1000).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::{retry_after_in_message, retry_after_ms};

    // Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: i64 = 784_111_777_000;

    #[test]
    fn header_values() {
        for (value, expected) in [
            ("120", Some(120_000)),
            (" 0 ", Some(0)),
            ("1.5", Some(1_500)),
            ("0.0001", Some(1)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30_000)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07", None),
            ("-1", None),
            ("+5", None),
            ("1e3", None),
            ("1.", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(retry_after_ms(value, NOW), expected, "Retry-After: {value:?}");
        }
    }

    #[test]
    fn header_extremes_do_not_overflow() {
        assert_eq!(retry_after_ms("Sun, 06 Nov 1994 08:49:37 GMT", i64::MAX), Some(0));
        let far = retry_after_ms("Fri, 31 Dec 9999 23:59:59 GMT", i64::MIN).unwrap();
        assert!(far > 1 << 62, "{far}");
    }

    #[test]
    fn texts_of_providers() {
        for (message, expected) in [
            (
                "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 14567, Requested 24754. \
                 Please try again in 18.642s. Visit https://platform.openai.com/account/rate-limits",
                Some(18_642),
            ),
            ("Limit: 10000 / min. Please try again in 6ms. Contact us", Some(6)),
            ("Please try again in 20ms.", Some(20)),
            ("Please try again in 6m0s.", Some(360_000)),
            ("Please try again in 1h2m3s", Some(3_723_000)),
            ("Please try again in 8m12.345s. Need more tokens?", Some(492_345)),
            ("current OpenAI S0 pricing tier. Please retry after 7 seconds. Please go here", Some(7_000)),
            ("* Quota exceeded for metric: x, limit: 20\nPlease retry in 20.04466179s.", Some(20_045)),
            (r#"{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26s"}"#, Some(26_000)),
            (r#"{"message": "You are being rate limited.", "retry_after": 64.57, "global": false}"#, Some(64_570)),
            ("Too Many Requests: retry after 35", Some(35_000)),
            ("Retry-After: 30", Some(30_000)),
            (r#"{"retry_after_ms": 1200}"#, Some(1_200)),
            ("Request was throttled. Expected available in 56 seconds.", Some(56_000)),
            ("Please wait 1 minute and 30 seconds before you try again.", Some(90_000)),
            ("wait for at least 5 min", Some(300_000)),
            ("You have exceeded a secondary rate limit. Please wait a few minutes before you try again.", None),
            ("Please try again later.", None),
            ("Please try again in 2 steps", None),
            ("retry after 2024-05-13", None),
            ("retryAfter: 1715600000", None),
            ("not enough seats on flight HAT229", None),
            ("", None),
        ] {
            assert_eq!(retry_after_in_message(message), expected, "{message}");
        }
    }
}
