//! Encryption and decryption of one value.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use chacha20poly1305::{
    AeadInOut as _, KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use zeroize::Zeroizing;

use super::{MARK, file::KEY_ID_BYTES_MAX};
use callgate_core::domain::{hashing::Hashing, ids::TenantId};

/// Length of a key, in bytes.
const KEY_BYTES: usize = 32;
/// Random prefix of all nonces of one row, in bytes; the rest counts its values.
const ROW_BYTES: usize = 20;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// Maximum overhead of an encrypted value, beside its base64 expansion of 4 to 3.
const WRAPPED_BYTES_MAX: usize = MARK.len() + KEY_ID_BYTES_MAX + 1 + (NONCE_BYTES + TAG_BYTES + 2) * 4 / 3 + 1;

/// Maximum length of an encrypted value of `bytes` bytes.
#[must_use]
pub const fn sealed_length(bytes: usize) -> usize {
    bytes * 4 / 3 + WRAPPED_BYTES_MAX
}

/// True for the form of an encrypted value; a tool's text may look like one, where its tenant has no key.
#[must_use]
pub fn is_sealed(stored: &str) -> bool {
    stored.starts_with(MARK)
}

/// A key, zeroized on drop and never printed.
#[derive(Clone)]
pub struct SealingKey(Zeroizing<[u8; KEY_BYTES]>);

/// Invalid text of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadKey;

impl SealingKey {
    /// Parses a key: 32 bytes in base64 or hexadecimal, surrounding whitespace allowed.
    ///
    /// # Errors
    /// [`BadKey`], which reveals nothing of the text.
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
        Hashing::with_key(&self.0)
    }

    /// True for equal keys.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Keys of one tenant.
#[derive(Debug, Clone)]
pub struct TenantKeys {
    /// By name, the encrypting one first.
    keys: Vec<(String, SealingKey)>,
    hashing: Hashing,
    /// True if the owner accepts that earlier history is dropped.
    pub anew: bool,
}

impl TenantKeys {
    /// Keys of a tenant, newest first, at least one; and its hashing key.
    #[must_use]
    pub fn new(keys: Vec<(String, SealingKey)>, fingerprint: &SealingKey, anew: bool) -> Self {
        Self { keys, hashing: fingerprint.hashing(), anew }
    }

    /// Hashing of its values.
    #[must_use]
    pub const fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    /// The name of the encrypting key.
    #[must_use]
    pub fn newest(&self) -> &str {
        self.keys.first().map_or("", |(id, _)| id)
    }

    /// All names, newest first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(id, _)| id.as_str())
    }

    fn of(&self, id: &str) -> Option<&SealingKey> {
        self.keys.iter().find(|(known, _)| known == id).map(|(_, key)| key)
    }
}

/// Authenticated place of a value: it decrypts nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueLocation<'a> {
    /// Tenant.
    pub tenant: TenantId,
    /// Session.
    pub session: &'a str,
    /// `seq` of the event.
    pub seq: u64,
    /// Kind of the value in the event: `call.arguments`.
    pub what: &'a str,
}

impl ValueLocation<'_> {
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

/// Failure to decrypt a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecryptError {
    /// The key of that name is missing.
    KeyMissing(String),
    /// Modified, moved or truncated.
    Changed,
}

/// A decrypted value.
pub type DecryptedValue<T> = Result<T, DecryptError>;

impl TenantKeys {
    /// The value of a stored text; a plain one, from before encryption, is returned unchanged.
    ///
    /// # Errors
    /// [`DecryptError`].
    pub fn open(&self, stored: String, place: &ValueLocation<'_>) -> DecryptedValue<String> {
        let Some((id, sealed)) = split_sealed(&stored) else { return Ok(stored) };
        let key = self.of(id).ok_or_else(|| DecryptError::KeyMissing(id.to_owned()))?;
        let sealed = BASE64.decode(sealed).map_err(|_| DecryptError::Changed)?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(DecryptError::Changed)?;
        let payload = Payload { msg: sealed, aad: &place.bytes() };
        let opened = key.cipher().decrypt(&XNonce::from(*nonce), payload).map_err(|_| DecryptError::Changed)?;
        String::from_utf8(opened).map_err(|_| DecryptError::Changed)
    }
}

/// Key name and rest of an encrypted value; none for a plain one.
fn split_sealed(stored: &str) -> Option<(&str, &str)> {
    stored.strip_prefix(MARK)?.split_once(':')
}

/// Key name of an encrypted value.
#[must_use]
pub fn key_id(stored: &str) -> Option<&str> {
    split_sealed(stored).map(|(id, _)| id)
}

/// Encrypts the values of one row, or of several stored at once.
#[derive(Debug)]
pub struct Sealer<'k> {
    keys: &'k TenantKeys,
    cipher: XChaCha20Poly1305,
    row: [u8; ROW_BYTES],
    values: u32,
}

impl<'k> Sealer<'k> {
    /// With the newest key; none without a key or system randomness.
    #[must_use]
    pub fn new(keys: &'k TenantKeys) -> Option<Self> {
        let mut row = [0; ROW_BYTES];
        getrandom::fill(&mut row).ok()?;
        Some(Self { keys, cipher: keys.keys.first()?.1.cipher(), row, values: 0 })
    }

    /// The encrypted value; none beyond the cipher's maximum length, which no value reaches.
    #[must_use]
    pub fn seal(&mut self, value: &str, place: &ValueLocation<'_>) -> Option<String> {
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

    /// True for a value encrypted with the newest key.
    #[must_use]
    pub fn is_newest(&self, stored: &str) -> bool {
        key_id(stored) == Some(self.keys.newest())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
