//! Texts of which only the beginning is stored.

use sha2::{Digest as _, Sha256};

use super::hashing::Hashing;

/// How large a stored result may be before it is cut, unless the policy says otherwise, in bytes: 256 KiB.
pub const RESULT_BYTES_MAX_DEFAULT: usize = 256 << 10;

/// What a text was of which only the beginning is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Its size, in bytes.
    pub bytes: u64,
    /// SHA-256 of all of it; of a tenant with keys of its own, under its fingerprint key.
    pub sha256: [u8; 32],
}

impl Whole {
    /// As a tenant has it, who may have a key of its own: then nobody else can tell the text by the hash.
    #[must_use]
    pub fn keyed(self, hashing: &Hashing) -> Self {
        Self { sha256: hashing.of(self.sha256), ..self }
    }
}

/// Cuts a text to at most so many bytes, by whole characters; says what it was, if anything is missing now.
#[must_use]
pub fn cut(text: &mut String, bytes_max: usize) -> Option<Whole> {
    if text.len() <= bytes_max {
        return None;
    }
    let whole = Whole { bytes: text.len() as u64, sha256: Sha256::digest(text.as_bytes()).into() };
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
            let whole = cut(&mut left, max).expect("it is longer");
            assert_eq!((&*left, whole.bytes), (rest, text.len() as u64));
            assert_eq!(digest::in_hexadecimal(&whole.sha256), digest::of_text(text));
        }
        for max in [6, 7] {
            let mut left = "häuse".to_owned();
            assert_eq!((cut(&mut left, max), &*left), (None, "häuse"));
        }
    }
}
