//! Truncation of stored texts.

use sha2::{Digest as _, Sha256};

use super::hashing::Hashing;

/// Default size, in bytes, above which a result is truncated: 256 KiB.
pub const RESULT_BYTES_MAX_DEFAULT: usize = 256 << 10;

/// Original size and digest of a truncated text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullText {
    /// Its size, in bytes.
    pub bytes: u64,
    /// SHA-256 of the original; under the fingerprint key of a tenant that has one.
    pub sha256: [u8; 32],
}

impl FullText {
    /// Under the tenant's key, if there is one, so that the hash reveals nothing.
    #[must_use]
    pub fn with_key(self, hashing: &Hashing) -> Self {
        Self { sha256: hashing.of(self.sha256), ..self }
    }
}

/// Truncates a text to at most `bytes_max`, by whole characters; returns the original's size and digest if it did.
#[must_use]
pub fn truncate_text(text: &mut String, bytes_max: usize) -> Option<FullText> {
    if text.len() <= bytes_max {
        return None;
    }
    let whole = FullText { bytes: text.len() as u64, sha256: Sha256::digest(text.as_bytes()).into() };
    text.truncate(text.floor_char_boundary(bytes_max));
    text.shrink_to_fit();
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::digest;

    #[test]
    fn a_text_is_cut_between_characters_and_what_it_was_is_known() {
        for (text, max, rest) in [("häuser", 2, "h"), ("häuser", 3, "hä"), ("日本", 5, "日"), ("日本", 2, "")] {
            let mut left = text.to_owned();
            let whole = truncate_text(&mut left, max).expect("it is longer");
            assert_eq!((&*left, whole.bytes), (rest, text.len() as u64));
            assert_eq!(digest::in_hexadecimal(&whole.sha256), digest::of_text(text));
        }
        for max in [6, 7] {
            let mut left = "häuse".to_owned();
            assert_eq!((truncate_text(&mut left, max), &*left), (None, "häuse"));
        }
    }
}
