//! Hashes that identify calls, arguments, results and executions.

use std::{fmt, sync::LazyLock};

use sha2::{Digest as _, Sha256};

use super::{
    answer::ComparableResult,
    digest::in_hexadecimal,
    hashing::Hashing,
    ids::{AgentId, SessionId, TenantId, ToolName},
    time::Timestamp,
};

macro_rules! hash {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// Lowercase hexadecimal, 64 characters.
            #[must_use]
            pub fn to_hex(&self) -> String {
                in_hexadecimal(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&in_hexadecimal(&self.0[..8]))
            }
        }
    };
}

hash!(
    /// SHA-256 of tool + canonical arguments. For recognizing repetition only.
    Fingerprint
);
hash!(
    /// SHA-256 of tool + all arguments as they will execute. Approvals and the reuse of a call_id are bound to it.
    ArgsDigest
);
hash!(
    /// SHA-256 of a result with its volatile parts masked, or of an error's masked signature.
    ResultDigest
);
hash!(
    /// Key of a ledger row: the exclusion of a write's executions across trees and replicas.
    LedgerKey
);

/// SHA-256 over length-prefixed parts, so that no two lists of parts run into each other.
fn sha256(label: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(label.as_bytes());
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

impl Fingerprint {
    /// The fingerprint of a tool with its canonical arguments.
    #[must_use]
    pub fn of(tool: &ToolName, canonical: &str) -> Self {
        Self(sha256("callgate/fingerprint/1", &[tool.as_str().as_bytes(), canonical.as_bytes()]))
    }

    /// Under the tenant's key, if there is one; derived ledger and idempotency keys are then unguessable, too.
    #[must_use]
    pub fn with_key(self, hashing: &Hashing) -> Self {
        Self(hashing.of(self.0))
    }
}

impl ArgsDigest {
    /// The digest of a tool with all its arguments.
    #[must_use]
    pub fn of(tool: &ToolName, all_arguments: &str) -> Self {
        Self(sha256("callgate/args/1", &[tool.as_str().as_bytes(), all_arguments.as_bytes()]))
    }

    /// Under the tenant's key, if there is one.
    #[must_use]
    pub fn with_key(self, hashing: &Hashing) -> Self {
        Self(hashing.of(self.0))
    }
}

impl ResultDigest {
    /// The digest of a success with that (masked) result.
    #[must_use]
    pub fn of_success(masked: &str) -> Self {
        Self(sha256("callgate/result/1", &[masked.as_bytes()]))
    }

    /// The digest of an error; it never equals a success's.
    #[must_use]
    pub fn of_error(kind: &str, signature: &str) -> Self {
        Self(sha256("callgate/error/1", &[kind.as_bytes(), signature.as_bytes()]))
    }

    /// Under the tenant's key, if there is one. Digests of empty results stay unkeyed: their length is no secret, and
    /// rules compare them.
    #[must_use]
    pub fn with_key(self, hashing: &Hashing) -> Self {
        let keyed = hashing.of(self.0);
        if keyed == self.0 || is_of_nothing(&self) { self } else { Self(keyed) }
    }
}

/// Digest of a witness: an opaque value of the caller's program for the state of a read resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WitnessDigest(pub [u8; 16]);

impl WitnessDigest {
    /// The digest of that value, under the tenant's key, if there is one.
    #[must_use]
    pub fn of(value: &str, hashing: &Hashing) -> Self {
        let whole = hashing.of(sha256("callgate/witness/1", &[value.as_bytes()]));
        Self(std::array::from_fn(|at| whole[at]))
    }
}

impl fmt::Debug for WitnessDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_hexadecimal(&self.0[..8]))
    }
}

/// The digests of bare empty results.
static EMPTY: LazyLock<[ResultDigest; 5]> = LazyLock::new(|| {
    ["", "null", "[]", "{}", "\"\""].map(|nothing| ComparableResult::of(nothing, &[], Timestamp::default()).digest)
});

/// True for the digest of an empty result, in any of the usual forms.
#[must_use]
pub fn is_of_nothing(digest: &ResultDigest) -> bool {
    EMPTY.contains(digest)
}

/// Exclusion scope of an execution of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExclusionScope<'a> {
    /// One call tree.
    Tree(&'a SessionId),
    /// All sessions of one agent.
    Agent(&'a AgentId),
    /// The whole tenant: `once` tools.
    Tenant,
}

impl ExclusionScope<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            ExclusionScope::Tree(root) => root.as_str().as_bytes().to_vec(),
            // No name holds a control character.
            ExclusionScope::Agent(agent) => [b"\0agent\0", agent.as_str().as_bytes()].concat(),
            ExclusionScope::Tenant => Vec::new(),
        }
    }
}

/// Bit of a ledger key's first byte that marks a scope beyond one tree.
const SHARED: u8 = 0x80;

impl LedgerKey {
    /// The ledger row of a fingerprint within `reach`.
    #[must_use]
    pub fn of(reach: ExclusionScope<'_>, fingerprint: &Fingerprint) -> Self {
        let mut key = sha256("callgate/ledger/1", &[&reach.bytes(), &fingerprint.0]);
        key[0] = if matches!(reach, ExclusionScope::Tree(_)) { key[0] & !SHARED } else { key[0] | SHARED };
        Self(key)
    }

    /// True when several call trees can use this row.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.0[0] & SHARED != 0
    }
}

/// The idempotency key of an execution: 32 hexadecimal characters, constant over all attempts of one occurrence, so
/// that the provider can detect retries. The model neither sees nor creates it.
#[must_use]
pub fn idempotency_key(
    tenant: TenantId,
    reach: ExclusionScope<'_>,
    fingerprint: &Fingerprint,
    occurrence: u64,
) -> String {
    let parts: [&[u8]; 4] = [&tenant.0.to_be_bytes(), &reach.bytes(), &fingerprint.0, &occurrence.to_be_bytes()];
    in_hexadecimal(&sha256("callgate/idempotency/1", &parts)[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let tool = |name| ToolName::parse("tool", name).expect("valid");
        assert_ne!(Fingerprint::of(&tool("ab"), "c"), Fingerprint::of(&tool("a"), "bc"));
        assert_ne!(Fingerprint::of(&tool("a"), "{}").0, ArgsDigest::of(&tool("a"), "{}").0);
    }

    #[test]
    fn an_error_never_looks_like_a_success() {
        assert_ne!(ResultDigest::of_success("timeout"), ResultDigest::of_error("", "timeout"));
    }
}
