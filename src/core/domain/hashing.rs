//! Keyed hashing of fingerprints, digests and witnesses. Unkeyed hashes of low-entropy values can be brute-forced. With
//! a key of the tenant each is hashed once more, with HMAC (docs/security.md#encryption-at-rest).

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::digest::in_hexadecimal;

/// Hashing of a tenant: unkeyed by default.
#[derive(Clone, Default)]
pub struct Hashing(Option<Hmac<Sha256>>);

/// Public identifier of a key that reveals nothing about it.
pub type KeyMark = [u8; 8];

impl Hashing {
    /// Under that key.
    #[must_use]
    pub fn with_key(key: &[u8; 32]) -> Self {
        Self(Hmac::new_from_slice(key).ok())
    }

    /// A hash as it is stored.
    #[must_use]
    pub fn of(&self, hash: [u8; 32]) -> [u8; 32] {
        match &self.0 {
            None => hash,
            Some(key) => key.clone().chain_update(hash).finalize().into_bytes().into(),
        }
    }

    /// The hash of a text as it is, hexadecimal.
    #[must_use]
    pub fn of_text(&self, text: &str) -> String {
        in_hexadecimal(&self.of(Sha256::digest(text.as_bytes()).into()))
    }

    /// The identifier of this key; none without a key.
    #[must_use]
    pub fn mark(&self) -> Option<KeyMark> {
        // Of another length than any hash.
        let mac = self.0.as_ref()?.clone().chain_update(b"callgate/key-mark/1").finalize().into_bytes();
        mac.first_chunk().copied()
    }
}

impl fmt::Debug for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "keyed" } else { "plain" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        digest,
        fingerprint::{ArgsDigest, Fingerprint, ResultDigest},
        ids::ToolName,
    };

    /// PINs recovered by brute force from a stored hash.
    fn guess_pins(hashing: &Hashing) -> [Option<String>; 4] {
        let tool = ToolName::parse("tool", "unlock").expect("valid");
        let arguments = |pin: u32| format!(r#"{{"pin":"{pin:04}"}}"#);
        let stored = arguments(4_711);
        let find = |is: &dyn Fn(&str) -> bool| (0..10_000).map(arguments).find(|text| is(text));
        let fingerprint = Fingerprint::of(&tool, &stored).with_key(hashing);
        let args = ArgsDigest::of(&tool, &stored).with_key(hashing);
        let result = ResultDigest::of_success(&stored).with_key(hashing);
        let text = hashing.of_text(&stored);
        [
            find(&|guess| Fingerprint::of(&tool, guess) == fingerprint),
            find(&|guess| ArgsDigest::of(&tool, guess) == args),
            find(&|guess| ResultDigest::of_success(guess) == result),
            find(&|guess| digest::of_text(guess) == text),
        ]
    }

    #[test]
    fn a_pin_is_guessed_from_hashes_without_a_key_and_not_from_those_with_one() {
        assert!(guess_pins(&Hashing::default()).iter().all(|found| found.as_deref() == Some(r#"{"pin":"4711"}"#)));
        assert!(guess_pins(&Hashing::with_key(&[7; 32])).iter().all(Option::is_none));
        assert_ne!(Hashing::with_key(&[7; 32]).mark(), Hashing::with_key(&[8; 32]).mark());
        assert_eq!(Hashing::default().mark(), None);
        assert_eq!(format!("{:?}", Hashing::with_key(&[7; 32])), "keyed");
    }
}
