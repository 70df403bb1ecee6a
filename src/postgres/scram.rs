//! SCRAM verifier of a password (RFC 5802) with one hash iteration instead of 4,096: those protect weak passwords, and
//! would cost each connection some 50 ms. This password has 192 random bits.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use sha2::{Digest as _, Sha256};

const BLOCK_BYTES: usize = 64;

/// The text to set as `password`, for a password of at most one block.
pub(super) fn verifier(password: &str, salt: &[u8]) -> String {
    let salted = hmac(password.as_bytes(), &[salt, &1_u32.to_be_bytes()].concat());
    let stored = Sha256::digest(hmac(&salted, b"Client Key"));
    let server = hmac(&salted, b"Server Key");
    let [salt, stored, server] = [salt, &stored, &server].map(|bytes| BASE64.encode(bytes));
    format!("SCRAM-SHA-256$1:{salt}${stored}:{server}")
}

/// RFC 2104, for keys of at most one block.
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK_BYTES];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyed_hash_is_that_of_rfc_4231() {
        let hash = hex::encode(hmac(b"Jefe", b"what do ya want for nothing?"));
        assert_eq!(hash, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
