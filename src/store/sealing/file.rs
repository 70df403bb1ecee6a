//! Keys file of `--keys`: tenants with encryption, and the sources of their keys, never keys themselves.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use callgate_core::domain::ids::Invalid;

/// Maximum length of a key's name, in bytes.
pub const KEY_ID_BYTES_MAX: usize = 64;
/// Maximum number of keys per tenant.
pub const KEYS_MAX: usize = 32;

/// Source of a key: 32 bytes in base64 or hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// The output of a command, as of a key management service: the program and its arguments.
    Command(Vec<String>),
}

/// Keys of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantKeySources {
    /// By name; the first encrypts, the others only decrypt.
    pub keys: Vec<(String, KeySource)>,
    /// Source of the hashing key, which never changes.
    pub fingerprint: KeySource,
    /// True to drop history that is known by unkeyed hashes.
    pub anew: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFileContent {
    tenants: BTreeMap<String, Tenant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tenant {
    keys: Vec<NamedKey>,
    fingerprint: KeyLocation,
    #[serde(default)]
    anew: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedKey {
    id: String,
    file: Option<PathBuf>,
    command: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyLocation {
    file: Option<PathBuf>,
    command: Option<Vec<String>>,
}

fn source(field: &str, file: Option<PathBuf>, command: Option<Vec<String>>) -> Result<KeySource, Invalid> {
    match (file, command) {
        (Some(file), None) => Ok(KeySource::File(file)),
        (None, Some(command)) if command.first().is_some_and(|program| !program.is_empty()) => {
            Ok(KeySource::Command(command))
        }
        _ => Err(Invalid::new(field, "has to have either `file`, or `command` with a program and its arguments")),
    }
}

fn id(field: &str, id: String) -> Result<String, Invalid> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if id.is_empty() || id.len() > KEY_ID_BYTES_MAX || !id.bytes().all(is_name) {
        let problem = format!("has to have 1 to {KEY_ID_BYTES_MAX} letters, digits, `-`, `_` or `.`");
        return Err(Invalid::new(field, problem));
    }
    Ok(id)
}

/// Parses the file.
///
/// # Errors
/// [`Invalid`] with the problem.
pub fn read(text: &str) -> Result<BTreeMap<String, TenantKeySources>, Invalid> {
    let file: KeyFileContent =
        serde_saphyr::from_str(text).map_err(|error| Invalid::new("the file", error.to_string()))?;
    let mut tenants = BTreeMap::new();
    for (name, tenant) in file.tenants {
        let at = |part: &str| format!("tenants.{name}.{part}");
        if tenant.keys.is_empty() || tenant.keys.len() > KEYS_MAX {
            return Err(Invalid::new(at("keys"), format!("has to name 1 to {KEYS_MAX} keys, the newest first")));
        }
        let mut keys: Vec<(String, KeySource)> = Vec::with_capacity(tenant.keys.len());
        for (place, key) in tenant.keys.into_iter().enumerate() {
            let field = at(&format!("keys[{place}]"));
            let id = id(&format!("{field}.id"), key.id)?;
            if keys.iter().any(|(known, _)| *known == id) {
                return Err(Invalid::new(format!("{field}.id"), format!("is {id:?}, as another key's of the tenant")));
            }
            keys.push((id, source(&field, key.file, key.command)?));
        }
        let fingerprint = source(&at("fingerprint"), tenant.fingerprint.file, tenant.fingerprint.command)?;
        tenants.insert(name, TenantKeySources { keys, fingerprint, anew: tenant.anew });
    }
    Ok(tenants)
}
