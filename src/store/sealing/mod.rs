//! What is stored of arguments and results, sealed with a key of the tenant: XChaCha20-Poly1305, each value bound to
//! its place, so that values cannot be swapped (docs/security.md#encryption-at-rest). This room knows keys, the form of
//! what is sealed and the file that names keys; it must not know where keys come from, nor tables.

pub mod file;
mod keyring;
mod seal;

pub use keyring::{Access, Keyring};
pub use seal::{BadKey, Key, Opened, Place, Sealer, TenantKeys, Unopened, is_sealed, key_id, sealed_length};

/// What every sealed value begins with, so that people who read tables see what it is; the format's version is in it.
pub const MARK: &str = "encrypted:1:";
