//! API tokens: `cg_agent_<id>_<secret><checksum>`. The prefix names the role, and the checksum lets a scanner tell a
//! token that leaked from a text that looks like one. A token is identified by its id, and by the SHA-256 of all of it:
//! with 256 random bits, nothing slower would be any safer.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use callgate_core::domain::{identity::Role, token::Digest};

const PREFIX: &str = "cg";
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Length of the id, in bytes and as text: random, so that it reveals nothing.
const ID_BYTES: usize = 8;
const ID_CHARS: usize = 11;
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = 43;
/// CRC-32.
const CHECK_CHARS: usize = 6;
/// Random bytes that a token is made of.
pub const RANDOM_BYTES: usize = ID_BYTES + SECRET_BYTES;
/// The longest token.
const CHARS_MAX: usize = 3 + 8 + 1 + ID_CHARS + 1 + SECRET_CHARS + CHECK_CHARS;

/// A new token. Its text is shown once, and has no `Debug`.
pub struct NewToken {
    /// Text that its holder presents.
    pub text: String,
    /// Its public name.
    pub id: String,
    /// Digest that is stored.
    pub digest: Digest,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Minted").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A presented token, well-formed and not yet verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresentedToken<'a> {
    /// Its public name.
    pub id: &'a str,
    /// To be compared with the stored digest.
    pub digest: Digest,
}

/// Makes a token for the strongest of these roles.
#[must_use]
pub fn mint(roles: &[Role], random: &[u8; RANDOM_BYTES]) -> NewToken {
    let kind = roles.iter().max().unwrap_or(&Role::Agent).as_str();
    let (id, secret) = random.split_at(ID_BYTES);
    let (id, secret) = (base62(id, ID_CHARS), base62(secret, SECRET_CHARS));
    let mut text = format!("{PREFIX}_{kind}_{id}_{secret}");
    text.push_str(&checksum(&text));
    let digest = Sha256::digest(text.as_bytes()).into();
    NewToken { text, id, digest }
}

/// Parses a token; none for an invalid or mistyped one.
#[must_use]
pub fn read(text: &str) -> Option<PresentedToken<'_>> {
    if text.len() > CHARS_MAX || !text.is_ascii() {
        return None;
    }
    let mut parts = text.split('_');
    let (prefix, kind, id, rest) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_whole = prefix == PREFIX && Role::from_name(kind).is_some() && parts.next().is_none();
    if !is_whole || id.len() != ID_CHARS || rest.len() != SECRET_CHARS + CHECK_CHARS {
        return None;
    }
    let (checked, check) = text.split_at(text.len() - CHECK_CHARS);
    (checksum(checked) == check).then(|| PresentedToken { id, digest: Sha256::digest(text.as_bytes()).into() })
}

/// Are they the same? In a time that does not depend on where they differ.
#[must_use]
pub fn is_same(one: &Digest, other: &Digest) -> bool {
    one.ct_eq(other).into()
}

fn checksum(text: &str) -> String {
    base62(&crc32fast::hash(text.as_bytes()).to_be_bytes(), CHECK_CHARS)
}

/// The bytes as one number, in so many digits.
fn base62(bytes: &[u8], digits: usize) -> String {
    let mut number = bytes.to_vec();
    let mut text = vec![ALPHABET[0]; digits];
    for digit in text.iter_mut().rev() {
        let mut rest = 0_u16;
        for byte in &mut number {
            let at = (rest << 8) | u16::from(*byte);
            (*byte, rest) = ((at / 62) as u8, at % 62);
        }
        *digit = ALPHABET[usize::from(rest)];
    }
    text.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mint_token(byte: u8) -> NewToken {
        mint(&[Role::Agent, Role::Approver], &[byte; RANDOM_BYTES])
    }

    #[test]
    fn a_token_names_what_it_is_and_is_read_back() {
        let token = mint_token(0xff);
        assert!(token.text.starts_with("cg_approver_") && token.text.len() <= CHARS_MAX, "{}", token.text);
        let shown = read(&token.text).expect("a token");
        assert_eq!((shown.id, shown.digest), (&*token.id, token.digest));
        assert!(!format!("{token:?}").contains(&token.text), "it is shown once, and not by a log");
        assert_ne!(mint_token(0).digest, token.digest);
        assert_eq!(mint(&[], &[1; RANDOM_BYTES]).text.split('_').nth(1), Some("agent"));
    }

    #[test]
    fn all_256_bits_are_in_it() {
        // The largest number that 43 digits have to hold: nothing is left over, and nothing is lost.
        let largest = base62(&[0xff; SECRET_BYTES], SECRET_CHARS);
        assert_eq!(largest.len(), SECRET_CHARS);
        assert_ne!(largest.chars().next(), Some('0'), "{largest}");
        let mut one_less = [0xff; SECRET_BYTES];
        one_less[SECRET_BYTES - 1] = 0xfe;
        assert_ne!(base62(&one_less, SECRET_CHARS), largest);
        assert_eq!(base62(&[0, 62], 3), "010");
    }

    #[test]
    fn a_letter_that_is_wrong_or_gone_makes_it_no_token() {
        let text = mint_token(7).text;
        for at in 0..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(read(&String::from_utf8(wrong).expect("ASCII")), None, "letter {at}");
            assert_eq!(read(&text[..at]), None, "{at} letters");
        }
        for wrong in [format!("{text} "), format!("{text}0"), text.replace('_', "-"), "é".repeat(30), "_".repeat(60)] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn digests_are_compared_as_a_whole() {
        let (one, other) = (mint_token(1).digest, mint_token(2).digest);
        assert!(is_same(&one, &one) && !is_same(&one, &other));
    }
}
