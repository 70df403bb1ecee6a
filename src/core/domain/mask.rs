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
        r"(?i-u:\bp[pg]?id\b[\s:=#(]{0,3}\d+|\b(?:process|thread) id[\s:=#(]{0,3}\d+|\btid[:= ]{1,2}\d+)",
        // what was made for a short while: the part below the directory of temporary files that looks drawn by lot
        r"(?-u:(?:/var/folders/[A-Za-z0-9_]{2}/[A-Za-z0-9_]+/T/|/(?:var/)?tmp/)[A-Za-z0-9._-]+)",
        // request ids by their usual prefixes
        r"(?-u:\b(?:req|request|trace|corr|correlation|span)[-_][0-9A-Za-z_-]{8,})",
        // hex ids: at least 12 digits of them
        r"(?-u:\b(?:0x)?[0-9A-Fa-f]{12,}\b)",
    ])
});

/// False when nothing in `text` can be volatile, which is so for most: each pattern of [`VOLATILE`] has one of these
/// marks, and what it takes must hold a digit, but for a path of temporary files.
fn may_be_volatile(text: &str) -> bool {
    const LABELS: [&str; 6] = ["req", "request", "trace", "corr", "correlation", "span"];
    let bytes = text.as_bytes();
    let (mut digits, mut marks, mut hex) = (false, false, 0);
    for (i, byte) in bytes.iter().enumerate() {
        hex = if byte.is_ascii_hexdigit() { hex + 1 } else { 0 };
        let next = |n: usize| bytes.get(i + n).copied().unwrap_or_default();
        marks |= hex >= 8;
        match byte {
            b'0'..=b'9' => {
                digits = true;
                let unit = if next(1).is_ascii_whitespace() || next(1) == b'\x0b' { next(2) } else { next(1) };
                marks |= matches!(unit, b'n' | b'u' | b'm' | b's');
            }
            b':' => marks = true,
            b'i' | b'I' => marks |= next(1).eq_ignore_ascii_case(&b'd'),
            b'-' | b'_' => marks |= LABELS.iter().any(|label| bytes[..i].ends_with(label.as_bytes())),
            b'/' if bytes[i..].starts_with(b"/tmp/") || bytes[i..].starts_with(b"/T/") => return true,
            _ => {}
        }
    }
    digits && marks
}

/// `text` with its volatile parts masked. UUIDs and long hexadecimal ids are masked too, and told to `named`.
pub(super) fn volatile<'t>(text: &'t str, named: &mut dyn FnMut(&str)) -> Cow<'t, str> {
    if !may_be_volatile(text) {
        return Cow::Borrowed(text);
    }
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

/// `text`, whose volatile parts are masked, with its names masked too and told to `named`. What may be a name: URLs,
/// `#17`, and words with digits in them.
pub(super) fn names<'t>(text: &'t str, named: &mut dyn FnMut(&str)) -> Cow<'t, str> {
    let mut out = Masked::of(text);
    let mut at = 0;
    while let Some(length) = next_token(text, &mut at) {
        let token = &text[at..at + length];
        if let Some((place, last, query)) = url_parts(token) {
            named(last);
            out.mask(at + place.len(), at + length - query.len());
        } else if token.starts_with('#') || is_id_like(token) {
            named(token);
            out.mask(at, at + length);
        }
        at += length;
    }
    out.close()
}

/// `text` with its bare numbers masked (`17`, `1,299.50`; not `v2`): it decides nothing but whether two texts differ in
/// them alone.
pub(super) fn numbers(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = Masked::of(text);
    let mut at = 0;
    while at < bytes.len() {
        let is_start = bytes[at].is_ascii_digit() && !ends_in_word(bytes, at);
        let length = if is_start { parts(&bytes[at..], u8::is_ascii_digit, [b'.', b',']) } else { 0 };
        if length > 0 {
            out.mask(at, at + length);
        }
        at += length.max(1);
    }
    out.close()
}

/// A text of which parts are masked; it is copied only if there are any.
struct Masked<'t> {
    text: &'t str,
    out: String,
    copied: usize,
}

impl<'t> Masked<'t> {
    fn of(text: &'t str) -> Self {
        Self { text, out: String::new(), copied: 0 }
    }

    fn mask(&mut self, from: usize, to: usize) {
        self.out.push_str(&self.text[self.copied..from]);
        self.out.push_str(MARK);
        self.copied = to;
    }

    fn close(mut self) -> Cow<'t, str> {
        if self.copied == 0 {
            return Cow::Borrowed(self.text);
        }
        self.out.push_str(&self.text[self.copied..]);
        Cow::Owned(self.out)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// What stands before `at` is part of a word.
fn ends_in_word(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| is_word(bytes[before]))
}

/// The length of the longest run of parts of a `kind` with one of `joints` between them that ends with a word; 0 when
/// there is none.
fn parts(bytes: &[u8], kind: fn(&u8) -> bool, joints: [u8; 2]) -> usize {
    let (mut at, mut longest) = (0, 0);
    loop {
        let part = bytes[at..].iter().take_while(|byte| kind(byte)).count();
        if part == 0 {
            return longest;
        }
        at += part;
        match bytes.get(at) {
            Some(joint) if joints.contains(joint) => {
                // Not every joint ends a word.
                longest = if is_word(*joint) { longest } else { at };
                at += 1;
            }
            Some(byte) if is_word(*byte) => return longest,
            _ => return at,
        }
    }
}

/// The length of the next token from `at` on, which is moved to its start.
fn next_token(text: &str, at: &mut usize) -> Option<usize> {
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(*at) {
        let rest = &bytes[*at..];
        let length = match byte {
            b'#' => {
                let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let is_whole = digits > 0 && !rest.get(digits + 1).copied().is_some_and(is_word);
                if is_whole { digits + 1 } else { 0 }
            }
            byte if byte.is_ascii_alphanumeric() && !ends_in_word(bytes, *at) => match url(&text[*at..]) {
                0 => {
                    let word = parts(rest, u8::is_ascii_alphanumeric, [b'-', b'_']);
                    word + usize::from(word > 0 && rest.get(word) == Some(&b'%'))
                }
                url => url,
            },
            _ => 0,
        };
        if length > 0 {
            return Some(length);
        }
        *at += 1;
    }
    None
}

/// The length of the URL that `text` begins with; 0 when it begins with none.
fn url(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else { return 0 };
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | ')' | ']' | '}' | '|' | '\\');
    let length = rest.find(ends).unwrap_or(rest.len());
    if length == 0 { 0 } else { text.len() - rest.len() + length }
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
    if let Some((first, rest)) = token.split_once(['-', '_']) {
        let last = rest.rsplit(['-', '_']).next().unwrap_or_default();
        let is_word = first.bytes().all(|b| b.is_ascii_alphabetic());
        let lot = |part: &str| part.len() >= 6 && is_mixed(part);
        return is_word && (is_digits(last) || lot(last)) && rest.split(['-', '_']).all(|part| !part.is_empty());
    }
    let is_code =
        token.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()) && token.len() >= 5 && digits >= 2;
    let is_hash = token.bytes().all(|b| b.is_ascii_hexdigit()) && token.len() >= 7;
    is_code || is_hash || (token.len() >= 8 && is_mixed(token))
}

/// Letters and digits change places three times or more: nobody's word.
fn is_mixed(part: &str) -> bool {
    let is_digit = |b: &u8| b.is_ascii_digit();
    let changes = part.as_bytes().windows(2).filter(|pair| is_digit(&pair[0]) != is_digit(&pair[1])).count();
    changes >= 2 && part.as_bytes().iter().filter(|b| is_digit(b)).count() >= 2
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
            ("Process Group PGID: 15784", "Process Group PGID: 15853"),
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
