//! What two texts may differ in and still say the same: volatile parts, and the names of occurrences.
//!
//! A *volatile* part says when, where or how fast something ran, and nothing about what came of it: a time of day, a
//! measured duration, the id of a request or a process, a path of a temporary file. A *name* tells one occurrence from
//! another: a UUID, `doc_17`, `#17`, the last part of a URL. A number without a label is neither, and a date without a
//! time of day is business data.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

/// Stands for what is masked. No text of a tool holds it by chance.
pub(super) const MARK: &str = "\u{1}";

fn fixed(parts: &[&str]) -> Regex {
    Regex::new(&parts.join("|")).expect("the pattern is fixed and tested")
}

/// What changes from one time to the next. Hexadecimal ids and request ids must hold a digit (and the former a letter),
/// which the caller checks.
static VOLATILE: LazyLock<Regex> = LazyLock::new(|| {
    fixed(&[
        // the id of a request, by its label
        r#"(?i-u:\b(?:request|trace|correlation|span)[ _-]?id["']?\s?[:=]?\s?["']?[0-9a-z][0-9a-z_-]{5,})"#,
        // UUID
        r"(?i-u:\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)",
        // date with time of day, a time of day with fractions or in the brackets of a log
        r"(?-u:\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|\s?[+-]\d\d:?\d\d)?)",
        r"(?-u:\b\d\d:\d\d:\d\d[.,]\d+|\[\d\d:\d\d:\d\d\])",
        // what `date` and mail headers write
        concat!(
            r"(?-u:\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (?:[A-Z][a-z]{2} {1,2}\d{1,2}|\d{1,2} [A-Z][a-z]{2} \d{4})",
            r" \d\d:\d\d:\d\d(?: [A-Z]{2,5}\b| [+-]\d{4}\b)?(?: \d{4}\b)?)",
        ),
        // measured durations: 12ms, 0.53 s, 3 seconds, 0m1.2s
        r"(?-u:\b\d+(?:\.\d+)?\s?(?:ns|us|ms|s|secs?|seconds?|msecs?|milliseconds?)\b|\b\d+m\d+(?:\.\d+)?s\b)",
        // processes and threads, by their label
        r"(?i-u:\bp?pid\b[\s:=#(]{0,3}\d+|\b(?:process|thread) id[\s:=#(]{0,3}\d+|\btid[:= ]{1,2}\d+)",
        // what was made for a short while: the part below the directory of temporary files that looks drawn by lot
        r"(?-u:(?:/var/folders/[A-Za-z0-9_]{2}/[A-Za-z0-9_]+/T/|/(?:var/)?tmp/)[A-Za-z0-9._-]+)",
        // request ids by their usual prefixes
        r"(?-u:\b(?:req|request|trace|corr|correlation|span)[-_][0-9A-Za-z_-]{8,})",
        // hex ids: at least 12 digits of them
        r"(?-u:\b(?:0x)?[0-9A-Fa-f]{12,}\b)",
    ])
});

/// What may name an occurrence: URLs, `#17`, and words with digits in them.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    fixed(&[r#"(?-u:\b)https?://[^\s"'<>)\]}|\\]+"#, r"(?-u:#\d+\b)", r"(?-u:\b[0-9A-Za-z]+(?:[-_][0-9A-Za-z]+)*\b%?)"])
});

/// A number by itself.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| fixed(&[r"(?-u:\b\d+(?:[.,]\d+)*\b)"]));

/// `text` with its volatile parts masked. UUIDs and long hexadecimal ids are masked too, and told to `named`.
pub(super) fn volatile<'t>(text: &'t str, named: &mut dyn FnMut(&str)) -> Cow<'t, str> {
    VOLATILE.replace_all(text, |found: &regex::Captures<'_>| {
        let part = &found[0];
        let has = |kind: fn(&u8) -> bool| part.as_bytes().iter().any(kind);
        let is_hex = part.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b'-' | b'x'));
        let is_kept = if is_hex {
            // A plain number or a plain word is no id; a UUID always has both hyphens and digits.
            !has(u8::is_ascii_digit) || !(part.contains('-') || has(u8::is_ascii_alphabetic))
        } else if part.starts_with('/') {
            !is_drawn_by_lot(part.rsplit('/').next().unwrap_or_default())
        } else {
            !has(u8::is_ascii_digit)
        };
        if is_kept {
            return part.to_owned();
        }
        if is_hex {
            named(part);
        }
        MARK.to_owned()
    })
}

/// `text`, whose volatile parts are masked, with its names masked too and told to `named`.
pub(super) fn names<'t>(text: &'t str, named: &mut dyn FnMut(&str)) -> Cow<'t, str> {
    TOKEN.replace_all(text, |found: &regex::Captures<'_>| {
        let token = &found[0];
        if let Some((place, last, query)) = url_parts(token) {
            named(last);
            return format!("{place}{MARK}{query}");
        }
        if token.starts_with('#') || is_id_like(token) {
            named(token);
            return MARK.to_owned();
        }
        token.to_owned()
    })
}

/// `text` with its bare numbers masked: it decides nothing but whether two texts differ in them alone.
pub(super) fn numbers(text: &str) -> Cow<'_, str> {
    NUMBER.replace_all(text, MARK)
}

/// A URL up to its last part, the last part (a path's, never the host), and what follows.
fn url_parts(token: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = token.split_once("://")?;
    let path = rest.find('/')?;
    let end = rest.find(['?', '#']).unwrap_or(rest.len()).max(path);
    let whole = rest[..end].trim_end_matches('/');
    let last = whole.rfind('/').filter(|slash| *slash >= path)? + 1;
    let begin = scheme.len() + 3;
    let name = &rest[last..whole.len()];
    (!name.is_empty()).then_some((&token[..begin + last], name, &rest[whole.len()..]))
}

/// `tmp8xk2_q`, `build-17`, `Xk3jQzPw`: not a name that somebody chose.
fn is_drawn_by_lot(part: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| part.as_bytes().iter().any(kind);
    let inner_capital = part.bytes().skip(1).any(|b| b.is_ascii_uppercase());
    part.starts_with("tmp") || has(u8::is_ascii_digit) || (inner_capital && has(u8::is_ascii_lowercase))
}

/// `doc_17`, `INV-2024-001`, `ABC123`, `3f78685`, `a1b2c3d4`, `pi_3NxYz81k`; not `2026-11-21`, `v2`, `60%` or `3rd`.
fn is_id_like(token: &str) -> bool {
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    let letters = token.bytes().filter(u8::is_ascii_alphabetic).count();
    if digits == 0 || letters == 0 || token.ends_with('%') {
        return false;
    }
    let mut parts = token.split(['-', '_']);
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    if let Some(last) = rest.last() {
        let is_word = first.bytes().all(|b| b.is_ascii_alphabetic());
        let lot = |part: &str| part.len() >= 6 && is_mixed(part);
        return is_word && (is_digits(last) || lot(last)) && rest.iter().all(|part| !part.is_empty());
    }
    let is_code =
        token.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()) && token.len() >= 5 && digits >= 2;
    let is_hash = token.bytes().all(|b| b.is_ascii_hexdigit()) && token.len() >= 7;
    is_code || is_hash || (token.len() >= 8 && is_mixed(token))
}

/// Letters and digits change places three times or more: nobody's word.
fn is_mixed(part: &str) -> bool {
    let kinds: Vec<bool> = part.bytes().map(|b| b.is_ascii_digit()).collect();
    kinds.windows(2).filter(|pair| pair[0] != pair[1]).count() >= 2 && kinds.iter().filter(|digit| **digit).count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> (String, String, Vec<String>) {
        let mut found = Vec::new();
        let quiet = volatile(text, &mut |name| found.push(name.to_owned())).into_owned();
        let shape = names(&quiet, &mut |name| found.push(name.to_owned())).into_owned();
        (quiet, shape, found)
    }

    #[test]
    fn what_only_says_when_where_or_how_fast_is_masked() {
        for (one, other) in [
            ("Sat Nov 21 21:26:19 UTC 2026", "Sun Nov 22 08:00:01 UTC 2026"),
            ("[21:26:19] built", "[21:26:20] built"),
            ("started, pid 4711", "started, PID=4712"),
            ("wrote /tmp/tmp8xk2_q/out.txt", "wrote /tmp/tmpq01ab9/out.txt"),
            ("at /var/folders/zz/zyxvpxvq6csfxvn_n0/T/go-build123", "at /var/folders/ab/qq/T/go-build99"),
            ("real 0m1.204s", "real 0m0.998s"),
            ("failed (request id: 8f7a6b5c)", "failed (request id: 11aa22bb)"),
        ] {
            let [one_masked, other_masked] = [one, other].map(|text| masked(text).0.to_lowercase());
            assert_eq!(one_masked, other_masked);
            assert!(masked(one).2.is_empty(), "{one} names nothing");
        }
    }

    #[test]
    fn what_might_mean_something_stays() {
        for text in [
            "departure 06:00:00",
            "flight on 2026-11-21",
            "total 375",
            "errors[3]: none",
            "request_timeout_exceeded",
            "request id missing",
            "/tmp/report.txt",
            "the top 10 of 60% in v2, utf8",
            "process 3 of 5",
            "https://example.com",
        ] {
            assert_eq!(masked(text).1, text);
        }
    }

    #[test]
    fn what_tells_occurrences_apart_is_a_name() {
        for (text, name) in [
            ("created doc_17", "doc_17"),
            ("opened #17", "#17"),
            ("invoice INV-2024-001 made", "INV-2024-001"),
            ("booked ABC123", "ABC123"),
            ("commit 3f78685", "3f78685"),
            ("payment pi_3NxYz81k", "pi_3NxYz81k"),
            ("see https://example.com/docs/q3-report?x=1", "q3-report"),
            ("id 550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
        ] {
            assert_eq!(masked(text).2, [name], "{text}");
        }
    }
}
