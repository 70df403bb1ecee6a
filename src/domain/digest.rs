//! SHA-256 of a text as it is. What a result comes to is [`super::answer`].

use sha2::Digest as _;

/// SHA-256 of a text as it is, hexadecimal.
#[must_use]
pub fn of_text(text: &str) -> String {
    hex::encode(sha2::Sha256::digest(text.as_bytes()))
}
