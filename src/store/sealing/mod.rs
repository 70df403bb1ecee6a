//! Encryption at rest of texts from arguments and results: XChaCha20-Poly1305 with a tenant's key. Each value is
//! authenticated with its place, so that values cannot be swapped (docs/security.md#encryption-at-rest). This module
//! knows keys, the format of encrypted values, and the keys file; it must not know sources of keys or tables.

pub mod file;
mod keyring;
mod seal;

pub use keyring::{Keyring, TenantStorage};
pub use seal::{
    BadKey, DecryptError, DecryptedValue, Sealer, SealingKey, TenantKeys, ValueLocation, is_sealed, key_id,
    sealed_length,
};

/// Prefix of every encrypted value, readable in tables, with the format's version.
pub const MARK: &str = "encrypted:1:";
