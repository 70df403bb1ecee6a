//! Pagination of lists. A token holds the sort key of a page's last entry: entries that come and go meanwhile move no
//! page.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::decode::{DecodeResult, wrong};

/// Error text for an invalid page token.
const UNKNOWN_PAGE: &str = "is not a token that this method has given";
/// The end of the year 9999, in microseconds since the epoch.
const MICROS_MAX: i64 = 253_402_300_799_999_999;
/// Parts a token: no name has a control character.
const PART: char = '\n';

/// A token of these parts.
pub(super) fn token<const N: usize>(parts: [&str; N]) -> String {
    URL_SAFE_NO_PAD.encode(parts.join("\n"))
}

/// The parts of a token, read; none for the first page.
pub(super) fn after<const N: usize, T>(
    token: &str,
    read: impl FnOnce([&str; N]) -> Option<T>,
) -> DecodeResult<Option<T>> {
    if token.is_empty() {
        return Ok(None);
    }
    let text = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let is_sound = |text: &String| text.chars().all(|c| c == PART || !c.is_control());
    let parts = text.filter(is_sound);
    let parts = parts.as_ref().map(|text| text.split(PART).collect::<Vec<_>>());
    let parts: Option<[&str; N]> = parts.and_then(|parts| parts.try_into().ok());
    match parts.and_then(read) {
        Some(after) => Ok(Some(after)),
        None => wrong("page_token", UNKNOWN_PAGE),
    }
}

/// A time of a token, in microseconds since the epoch: one that the database can compare with.
pub(super) fn micros(text: &str) -> Option<i64> {
    text.parse().ok().filter(|micros| (0..=MICROS_MAX).contains(micros))
}

/// The same in milliseconds.
pub(super) fn millis(text: &str) -> Option<i64> {
    text.parse().ok().filter(|millis| (0..=MICROS_MAX / 1_000).contains(millis))
}

/// The first `size` entries, of one more where there is another page; and that page's token.
pub(super) fn split_page<T>(mut read: Vec<T>, size: usize, token: impl FnOnce(&T) -> String) -> (Vec<T>, String) {
    let more = read.len() > size;
    read.truncate(size);
    let next = read.last().filter(|_| more).map(token).unwrap_or_default();
    (read, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_of_as_many_readable_parts_are_known() {
        let given = token(["7", "a b"]);
        let read = |[n, name]: [&str; 2]| Some((n.parse::<u64>().ok()?, name.to_owned()));
        assert_eq!(after(&given, read).unwrap(), Some((7, "a b".to_owned())));
        assert_eq!(after("", read).unwrap(), None);
        for wrong in
            [token(["x", "a"]), token(["7"]), token(["7", "a\0b"]), "7 a".to_owned(), "é".to_owned(), "____".to_owned()]
        {
            assert_eq!(after(&wrong, read).unwrap_err().field, "page_token", "{wrong}");
        }
    }

    #[test]
    fn a_time_is_one_that_can_be_compared() {
        assert_eq!(micros("1700000000000000"), Some(1_700_000_000_000_000));
        for wrong in ["-1", "9223372036854775807", "x", ""] {
            assert_eq!(micros(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_last_page_has_no_next_one() {
        let cut = |n: usize| split_page((1..=n).collect(), 2, ToString::to_string);
        assert_eq!(cut(2), (vec![1, 2], String::new()));
        assert_eq!(cut(3), (vec![1, 2], "2".to_owned()));
    }
}
