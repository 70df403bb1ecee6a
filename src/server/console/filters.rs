//! Template filters for values. A model may write anything into the texts that are shown here: invisible characters,
//! and those that change the order of the visible ones, are made visible.

#![allow(unreachable_pub, reason = "what the attribute makes of each filter is public")]

use std::fmt::Write as _;

use askama::{Values, filter_fn, filters::Safe};
use chrono::DateTime;
use prost_types::Timestamp;

use callgate_core::domain::visible::is_visible;

/// A text as HTML in which every character is seen.
pub(super) fn escape_text(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    for char in text.chars() {
        match char {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            char if is_visible(char) => html.push(char),
            char => {
                let code = u32::from(char);
                let _ = write!(html, "<mark class=\"unseen\">U+{code:04X}</mark>");
            }
        }
    }
    html
}

/// `{{ text|visible }}`
#[filter_fn]
pub(super) fn visible(text: impl AsRef<str>, _: &dyn Values) -> askama::Result<Safe<String>> {
    Ok(Safe(escape_text(text.as_ref())))
}

fn time(at: &Timestamp) -> Option<DateTime<chrono::Utc>> {
    DateTime::from_timestamp(at.seconds, u32::try_from(at.nanos).ok()?)
}

/// A time as scripts read it.
pub(super) fn machine_time(at: Option<&Timestamp>) -> Option<String> {
    at.and_then(time).map(|at| at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// `{{ at|moment }}`: a time, which scripts show in the browser's own time zone; nothing where there is none.
#[filter_fn]
pub(super) fn moment(at: &Option<Timestamp>, _: &dyn Values) -> askama::Result<Safe<String>> {
    let Some(at) = at.as_ref().and_then(time) else { return Ok(Safe(String::new())) };
    let (machine, people) = (at.format("%Y-%m-%dT%H:%M:%S%.3fZ"), at.format("%Y-%m-%d %H:%M:%S UTC"));
    Ok(Safe(format!("<time datetime=\"{machine}\">{people}</time>")))
}

/// `{{ at|instant }}`: the same to the millisecond, for timelines.
#[filter_fn]
pub(super) fn instant(at: &Option<Timestamp>, _: &dyn Values) -> askama::Result<Safe<String>> {
    let Some(at) = at.as_ref().and_then(time) else { return Ok(Safe(String::new())) };
    let (machine, people) = (at.format("%Y-%m-%dT%H:%M:%S%.3fZ"), at.format("%Y-%m-%d %H:%M:%S%.3f UTC"));
    Ok(Safe(format!("<time datetime=\"{machine}\" data-precise=\"1\">{people}</time>")))
}

/// `{{ text|visible_text }}`: the same for attributes, which hold no elements.
#[filter_fn]
pub(super) fn visible_text(text: impl AsRef<str>, _: &dyn Values) -> askama::Result<String> {
    Ok(text.as_ref().chars().map(|char| if is_visible(char) { char } else { char::REPLACEMENT_CHARACTER }).collect())
}

/// A number with its thousands apart.
pub(super) fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|part| std::str::from_utf8(part).ok()).collect();
    parts.join(",")
}

/// `{{ number|thousands }}`
#[filter_fn]
pub(super) fn thousands(number: &u64, _: &dyn Values) -> askama::Result<String> {
    Ok(group_thousands(*number))
}

/// Micro-dollars as dollars with two to four digits, rounded down: `$1,500.25`, `$0.0003`.
pub(super) fn dollars(micros: u64) -> String {
    let (whole, rest) = (group_thousands(micros / 1_000_000), micros % 1_000_000 / 100);
    match rest {
        0 if (1..100).contains(&micros) => "<$0.0001".to_owned(),
        rest if rest % 100 == 0 || micros >= 1_000_000 => format!("${whole}.{:02}", rest / 100),
        rest => format!("${whole}.{}", format!("{rest:04}").trim_end_matches('0')),
    }
}

/// `{{ micros|money }}`
#[filter_fn]
pub(super) fn money(micros: &u64, _: &dyn Values) -> askama::Result<String> {
    Ok(dollars(*micros))
}

/// A share as people write it.
pub(super) fn share(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `{{ rate|percent }}`
#[filter_fn]
pub(super) fn percent(rate: &f64, _: &dyn Values) -> askama::Result<String> {
    Ok(share(*rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_model_is_neither_hidden_nor_run() {
        assert_eq!(escape_text("<b onload=\"x\">'&"), "&lt;b onload=&quot;x&quot;&gt;&#39;&amp;");
        assert_eq!(escape_text("a\tb\nc — é 漢 🙂"), "a\tb\nc — é 漢 🙂");
        let hidden = [
            '\0',
            '\r',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{ad}',
            '\u{200b}',
            '\u{200e}',
            '\u{202e}',
            '\u{2066}',
            '\u{2028}',
            '\u{feff}',
            '\u{e0041}',
            '\u{fe0f}',
            '\u{3164}',
            '\u{115f}',
            '\u{e000}',
            '\u{10ffff}',
        ];
        for char in hidden {
            let html = escape_text(&format!("a{char}b"));
            assert_eq!(html, format!("a<mark class=\"unseen\">U+{:04X}</mark>b", u32::from(char)));
        }
    }

    #[test]
    fn numbers_are_told_as_people_write_them() {
        assert_eq!(group_thousands(0), "0");
        assert_eq!(group_thousands(999), "999");
        assert_eq!(group_thousands(1_000), "1,000");
        assert_eq!(group_thousands(12_345_678), "12,345,678");
    }

    #[test]
    fn money_has_two_to_four_digits() {
        let told = [0, 1_500_000, 300, 1_010_000, 1, 123_456, 1_234_567_890, 20_000].map(dollars);
        let expected = ["$0.00", "$1.50", "$0.0003", "$1.01", "<$0.0001", "$0.1234", "$1,234.56", "$0.02"];
        assert_eq!(told, expected);
    }
}
