//! One value, sealed and opened.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use chacha20poly1305::{
    AeadInOut as _, KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use zeroize::Zeroizing;

use super::{MARK, file::KEY_ID_BYTES_MAX};
use callgate_core::domain::{hashing::Hashing, ids::TenantId};

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Random bytes at the beginning of all nonces of one row; the rest counts its values.
const ROW_BYTES: usize = 20;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// What a sealed value has at most beside its own bytes, which take 4 for 3.
const WRAPPED_BYTES_MAX: usize = MARK.len() + KEY_ID_BYTES_MAX + 1 + (NONCE_BYTES + TAG_BYTES + 2) * 4 / 3 + 1;

/// The longest sealed form of a value of so many bytes.
#[must_use]
pub const fn sealed_length(bytes: usize) -> usize {
    bytes * 4 / 3 + WRAPPED_BYTES_MAX
}

/// Is this a sealed value? What a tool says may look like one, where its tenant has no key.
#[must_use]
pub fn is_sealed(stored: &str) -> bool {
    stored.starts_with(MARK)
}

/// A key; wiped when it is dropped, and told to nobody.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; KEY_BYTES]>);

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadKey;

impl Key {
    /// The key of a text: 32 bytes in base64 or hexadecimal, with white space around it.
    ///
    /// # Errors
    /// [`BadKey`], which says nothing of the text.
    pub fn parse(text: &[u8]) -> Result<Self, BadKey> {
        let text = text.trim_ascii();
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if text.len() == 2 * KEY_BYTES {
            return hex::decode_to_slice(text, &mut key[..]).map(|()| Self(key)).map_err(|_| BadKey);
        }
        let text = text.strip_suffix(b"=").unwrap_or(text);
        let read = Zeroizing::new(BASE64.decode(text).map_err(|_| BadKey)?);
        key.copy_from_slice(<&[u8; KEY_BYTES]>::try_from(&read[..]).map_err(|_| BadKey)?);
        Ok(Self(key))
    }

    /// Hashing under this key.
    #[must_use]
    pub fn hashing(&self) -> Hashing {
        Hashing::keyed(&self.0)
    }

    /// True where two keys are one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The keys of one tenant.
#[derive(Debug, Clone)]
pub struct TenantKeys {
    /// By their names, the one that seals first.
    keys: Vec<(String, Key)>,
    hashing: Hashing,
    /// That what was known before these keys is known no more, is as its owner wants it.
    pub anew: bool,
}

impl TenantKeys {
    /// The keys of a tenant, newest first, of which there is one at least; and the one for its hashes.
    #[must_use]
    pub fn new(keys: Vec<(String, Key)>, fingerprint: &Key, anew: bool) -> Self {
        Self { keys, hashing: fingerprint.hashing(), anew }
    }

    /// How its values are hashed.
    #[must_use]
    pub const fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    /// The name of the key that seals.
    #[must_use]
    pub fn newest(&self) -> &str {
        self.keys.first().map_or("", |(id, _)| id)
    }

    /// The names of all, the newest first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(id, _)| id.as_str())
    }

    fn of(&self, id: &str) -> Option<&Key> {
        self.keys.iter().find(|(known, _)| known == id).map(|(_, key)| key)
    }
}

/// Where a value stands: nowhere else does it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Of which session.
    pub session: &'a str,
    /// The event's place among those of its call tree.
    pub seq: u64,
    /// What it is of the event: `call.arguments`.
    pub what: &'a str,
}

impl Place<'_> {
    fn bytes(&self) -> Vec<u8> {
        let session = self.session.as_bytes();
        let length = (session.len() as u64).to_be_bytes();
        let parts: [&[u8]; 6] = [
            MARK.as_bytes(),
            &self.tenant.0.to_be_bytes(),
            &length,
            session,
            &self.seq.to_be_bytes(),
            self.what.as_bytes(),
        ];
        parts.concat()
    }
}

/// Why a value did not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unopened {
    /// The key of that name is not here.
    KeyMissing(String),
    /// It was changed, or stands where it was not put, or is cut off.
    Changed,
}

/// A value as it was before it was sealed.
pub type Opened<T> = Result<T, Unopened>;

impl TenantKeys {
    /// The value of a stored text: one that is not sealed, from before there were keys, is itself.
    ///
    /// # Errors
    /// [`Unopened`].
    pub fn open(&self, stored: String, place: &Place<'_>) -> Opened<String> {
        let Some((id, sealed)) = parts(&stored) else { return Ok(stored) };
        let key = self.of(id).ok_or_else(|| Unopened::KeyMissing(id.to_owned()))?;
        let sealed = BASE64.decode(sealed).map_err(|_| Unopened::Changed)?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(Unopened::Changed)?;
        let payload = Payload { msg: sealed, aad: &place.bytes() };
        let opened = key.cipher().decrypt(&XNonce::from(*nonce), payload).map_err(|_| Unopened::Changed)?;
        String::from_utf8(opened).map_err(|_| Unopened::Changed)
    }
}

/// The name of the key of a sealed value, and the rest; none for what is not sealed.
fn parts(stored: &str) -> Option<(&str, &str)> {
    stored.strip_prefix(MARK)?.split_once(':')
}

/// The name of the key of a sealed value.
#[must_use]
pub fn key_id(stored: &str) -> Option<&str> {
    parts(stored).map(|(id, _)| id)
}

/// Seals the values of one row, or of several that are stored at once.
#[derive(Debug)]
pub struct Sealer<'k> {
    keys: &'k TenantKeys,
    cipher: XChaCha20Poly1305,
    row: [u8; ROW_BYTES],
    values: u32,
}

impl<'k> Sealer<'k> {
    /// With the newest key; none where there is no key, or the system gives no randomness.
    #[must_use]
    pub fn new(keys: &'k TenantKeys) -> Option<Self> {
        let mut row = [0; ROW_BYTES];
        getrandom::fill(&mut row).ok()?;
        Some(Self { keys, cipher: keys.keys.first()?.1.cipher(), row, values: 0 })
    }

    /// The sealed form of a value; none for one that is too long for the cipher, which no value is.
    #[must_use]
    pub fn seal(&mut self, value: &str, place: &Place<'_>) -> Option<String> {
        let mut nonce = [0; NONCE_BYTES];
        let (row, count) = nonce.split_at_mut(ROW_BYTES);
        row.copy_from_slice(&self.row);
        count.copy_from_slice(&self.values.to_be_bytes());
        self.values = self.values.checked_add(1)?;
        let mut sealed = Vec::with_capacity(NONCE_BYTES + value.len() + TAG_BYTES);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(value.as_bytes());
        let tag = self.cipher.encrypt_inout_detached(
            &XNonce::from(nonce),
            &place.bytes(),
            (&mut sealed[NONCE_BYTES..]).into(),
        );
        sealed.extend_from_slice(&tag.ok()?);
        let mut text = String::with_capacity(sealed_length(value.len()));
        text.push_str(MARK);
        text.push_str(self.keys.newest());
        text.push(':');
        BASE64.encode_string(&sealed, &mut text);
        Some(text)
    }

    /// True for a stored text that is the sealed form of the newest key.
    #[must_use]
    pub fn is_newest(&self, stored: &str) -> bool {
        key_id(stored) == Some(self.keys.newest())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
