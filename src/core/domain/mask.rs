//! Masking of volatile parts of a result: times of day, durations, request ids, temporary paths. A date without a time
//! of day is business data, and the id of a thing a name.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

/// Placeholder for a masked part; tools' texts do not contain it.
pub(super) const MARK: &str = "\u{1}";

fn compile_pattern(parts: &[&str]) -> Regex {
    Regex::new(&parts.join("|")).expect("the pattern is fixed and tested")
}

/// Patterns of volatile parts. A request id must contain a digit, which the caller checks.
static VOLATILE: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(&[
        // the id of a request, by its label
        r#"(?i-u:\b(?:request|trace|correlation|span)[ _-]?id["']?\s?[:=]?\s?["']?[0-9a-z][0-9a-z_-]{5,})"#,
        // a tag that is drawn for one answer
        r"(?i-u:</?[a-z_-]{1,40}-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}>)",
        // the query of a URL
        r"(?i-u:\bhttps?://[!#-&(-;=@-~]*\?[!#-&*-;=?-\[^-z~]+)",
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
        r"(?i-u:\bp[pg]?id\b[\s:=#(]{0,3}\d+|\b(?:process|thread) id[\s:=#(]{0,3}\d+|\btid[:= ]{1,2}\d+)",
        // what was made for a short while: the part below the directory of temporary files that looks drawn by lot
        r"(?-u:(?:/var/folders/[A-Za-z0-9_]{2}/[A-Za-z0-9_]+/T/|/(?:var/)?tmp/)[A-Za-z0-9._-]+)",
        // request ids by their usual prefixes
        r"(?-u:\b(?:req|request|trace|corr|correlation|span)[-_][0-9A-Za-z_-]{8,})",
    ])
});

/// Prefilter: false when `text` cannot match [`VOLATILE`], as for most. Each pattern needs one of these marks, and a
/// digit, except for temporary paths.
fn may_be_volatile(text: &str) -> bool {
    const LABELS: [&str; 6] = ["req", "request", "trace", "corr", "correlation", "span"];
    let bytes = text.as_bytes();
    let (mut digits, mut marks) = (false, false);
    for (i, byte) in bytes.iter().enumerate() {
        let next = |n: usize| bytes.get(i + n).copied().unwrap_or_default();
        match byte {
            b'0'..=b'9' => {
                digits = true;
                let unit = if next(1).is_ascii_whitespace() || next(1) == b'\x0b' { next(2) } else { next(1) };
                marks |= matches!(unit, b'n' | b'u' | b'm' | b's');
            }
            b':' | b'<' => marks = true,
            b'i' | b'I' => marks |= next(1).eq_ignore_ascii_case(&b'd'),
            b'-' | b'_' => marks |= LABELS.iter().any(|label| bytes[..i].ends_with(label.as_bytes())),
            b'/' if bytes[i..].starts_with(b"/tmp/") || bytes[i..].starts_with(b"/T/") => return true,
            _ => {}
        }
    }
    digits && marks
}

/// `text` with its volatile parts masked.
pub(super) fn volatile(text: &str) -> Cow<'_, str> {
    if !may_be_volatile(text) {
        return Cow::Borrowed(text);
    }
    VOLATILE.replace_all(text, |found: &regex::Captures<'_>| {
        let part = &found[0];
        if let Some((address, _)) = part.split_once('?').filter(|(address, _)| address.contains("://")) {
            return format!("{address}{MARK}");
        }
        let is_volatile = match part.strip_prefix('/') {
            Some(path) => is_drawn_by_lot(path.rsplit('/').next().unwrap_or_default()),
            None => part.bytes().any(|b| b.is_ascii_digit()),
        };
        if is_volatile { MARK.to_owned() } else { part.to_owned() }
    })
}

/// True for a random name, not a chosen one: `tmp8xk2_q`, `build-17`, `Xk3jQzPw`.
fn is_drawn_by_lot(part: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| part.as_bytes().iter().any(kind);
    let inner_capital = part.bytes().skip(1).any(|b| b.is_ascii_uppercase());
    part.starts_with("tmp") || has(u8::is_ascii_digit) || (inner_capital && has(u8::is_ascii_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_places_and_durations_are_masked() {
        for (one, other) in [
            ("Sat Nov 21 21:26:19 UTC 2026", "Sun Nov 22 08:00:01 UTC 2026"),
            ("[21:26:19] built", "[21:26:20] built"),
            ("started, pid 4711", "started, PID=4712"),
            ("Process Group PGID: 15784", "Process Group PGID: 15853"),
            ("wrote /tmp/tmp8xk2_q/out.txt", "wrote /tmp/tmpq01ab9/out.txt"),
            ("at /var/folders/zz/zyxvpxvq6csfxvn_n0/T/go-build123", "at /var/folders/ab/qq/T/go-build99"),
            ("real 0m1.204s", "real 0m0.998s"),
            ("failed (request id: 8f7a6b5c)", "failed (request id: 11aa22bb)"),
            ("see https://x.org/d?sig=8f7a, soon", "see https://x.org/d?sig=11bb&t=2, soon"),
            (
                "<data-550e8400-e29b-41d4-a716-446655440000>ok</data-550e8400-e29b-41d4-a716-446655440000>",
                "<data-650e8400-e29b-41d4-a716-446655440000>ok</data-650e8400-e29b-41d4-a716-446655440000>",
            ),
        ] {
            assert_eq!(volatile(one).to_lowercase(), volatile(other).to_lowercase());
        }
    }

    #[test]
    fn meaningful_text_is_not_masked() {
        for text in [
            "departure 06:00:00",
            "flight on 2026-11-21",
            "total 375",
            "errors[3]: none",
            "request_timeout_exceeded",
            "request id missing",
            "/tmp/report.txt",
            "process 3 of 5",
            "https://example.com/a",
            "id 550e8400-e29b-41d4-a716-446655440000",
            "commit 3f786850e387550fdab8",
        ] {
            assert_eq!(volatile(text), text);
        }
    }
}
