//! SHA-256 of a text as it is; digests of results are in [`super::answer`].

use sha2::Digest as _;

/// SHA-256 of a text as it is, hexadecimal.
#[must_use]
pub fn of_text(text: &str) -> String {
    in_hexadecimal(&sha2::Sha256::digest(text.as_bytes()))
}

/// Lowercase hexadecimal, allocated once at its full length.
#[must_use]
pub fn in_hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    hexadecimal(bytes, &mut text);
    text
}

/// Writes `bytes` in lowercase hexadecimal.
pub(super) fn hexadecimal(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}
