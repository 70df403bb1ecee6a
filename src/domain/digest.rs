//! The digest of a result: what must be equal for two results to say the same.

use std::sync::LazyLock;

use regex::Regex;
use sha2::Digest as _;

use super::{
    fingerprint::ResultDigest,
    json::{self, Json},
};

/// Results up to this size are read as JSON, so that key order and number forms do not tell; larger ones are hashed as
/// the text that they are.
const JSON_BYTES_MAX: usize = 256 << 10;

/// What differs between two answers that say the same. Plain dates are business data and stay; so do hex words without
/// a digit, and numbers.
static VOLATILE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        // UUID
        r"(?i-u:\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)",
        // date with time of day, or a time of day with fractions
        r"|(?-u:\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|\s?[+-]\d\d:?\d\d)?)",
        r"|(?-u:\b\d\d:\d\d:\d\d[.,]\d+)",
        // measured durations: 12ms, 0.53 s, 3 seconds
        r"|(?-u:\b\d+(?:\.\d+)?\s?(?:ns|us|ms|s|secs?|seconds?|msecs?|milliseconds?)\b)",
        // request ids by their usual prefixes
        r"|(?-u:\b(?:req|request|trace|corr|correlation|span)[-_][0-9A-Za-z_-]{8,})",
        // hex ids: at least 12 digits of them, one a decimal digit and one a letter (checked by the caller)
        r"|(?-u:\b(?:0x)?[0-9a-f]{12,}\b)",
    ))
    .ok()
});

/// SHA-256 of a text as it is, hexadecimal.
#[must_use]
pub fn of_text(text: &str) -> String {
    hex::encode(sha2::Sha256::digest(text.as_bytes()))
}

/// `text` with its volatile parts replaced by a mark.
#[must_use]
pub fn mask(text: &str) -> String {
    let Some(volatile) = VOLATILE.as_ref() else {
        return text.to_owned();
    };
    volatile
        .replace_all(text, |found: &regex::Captures<'_>| {
            let part = &found[0];
            let bare_digits = part.bytes().all(|b| b.is_ascii_digit());
            let bare_letters = part.bytes().all(|b| b.is_ascii_alphabetic());
            if bare_digits || bare_letters { part.to_owned() } else { "\u{1}".to_owned() }
        })
        .into_owned()
}

/// The digest of a successful result, after the `volatile` fields (JSON pointers, `*` for any) are gone and what looks
/// volatile is masked.
#[must_use]
pub fn of_success(result: &str, volatile: &[String]) -> ResultDigest {
    let parsed = if result.len() <= JSON_BYTES_MAX { json::parse(result).ok() } else { None };
    match parsed {
        Some(value @ (Json::Object(_) | Json::Array(_))) => {
            let mut value = value;
            volatile.iter().for_each(|pointer| value.remove(pointer));
            ResultDigest::of_success(&mask(&value.canonical()))
        }
        _ => ResultDigest::of_success(&mask(result.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_answer_at_another_time_has_the_same_digest() {
        for (one, other) in [
            ("done at 2026-11-21T10:00:00Z in 12ms", "done at 2026-11-21T10:00:07.5Z in 9 ms"),
            (r#"{"a":1,"request_id":"req_8f7a6b5c4d3e"}"#, r#"{"request_id":"req_000aaabbbccc","a":1.0}"#),
            ("id 550e8400-e29b-41d4-a716-446655440000", "id 650E8400-e29b-41d4-a716-446655440000"),
            ("commit 3f786850e387550fdab8", "commit 89e6c98d92887913cadf"),
        ] {
            assert_eq!(of_success(one, &[]), of_success(other, &[]), "{one} / {other}");
        }
    }

    #[test]
    fn another_answer_has_another_digest() {
        for (one, other) in [
            ("flight on 2026-11-21", "flight on 2026-11-22"),
            ("total 375", "total 376"),
            ("order 123456789012345", "order 123456789012346"),
            ("[]", "{}"),
            ("departure 06:00:00", "departure 07:00:00"),
        ] {
            assert_ne!(of_success(one, &[]), of_success(other, &[]), "{one} / {other}");
        }
    }

    #[test]
    fn volatile_fields_do_not_count() {
        let volatile = ["/elapsed".to_owned(), "/rows/*/rank".to_owned()];
        let digest = |text| of_success(text, &volatile);
        assert_eq!(
            digest(r#"{"elapsed":1,"rows":[{"id":7,"rank":1}]}"#),
            digest(r#"{"elapsed":2,"rows":[{"id":7,"rank":2}]}"#)
        );
        assert_ne!(digest(r#"{"rows":[{"id":7}]}"#), digest(r#"{"rows":[{"id":8}]}"#));
    }
}
