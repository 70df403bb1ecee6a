//! Sharding: assigns the rows of a call tree to one shard, which is the first column of their keys. The hash never
//! changes, because stored rows are found by it.

use super::{
    fingerprint::LedgerKey,
    ids::{AgentId, SessionId, TenantId},
};

/// Number of shards.
pub const SHARDS: u16 = 1_024;

/// Shard number, 0 to 1,023, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub i16);

/// FNV-1a, 64 bits, over the tenant's eight bytes (big-endian) and the name's; the upper half is folded into the lower
/// one, which alone is used.
fn of(tenant: TenantId, name: &[u8]) -> Shard {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = tenant.0.to_be_bytes().iter().chain(name).fold(0xcbf2_9ce4_8422_2325, step);
    Shard(((hash ^ (hash >> 32)) % u64::from(SHARDS)) as i16)
}

impl Shard {
    /// The shard of a session's name; for a root, also of its call tree.
    #[must_use]
    pub fn of(tenant: TenantId, session: &SessionId) -> Self {
        of(tenant, session.as_str().as_bytes())
    }

    /// The shard of an agent's shared counters; none for the tenant's own.
    #[must_use]
    pub fn of_counters(tenant: TenantId, agent: Option<&AgentId>) -> Self {
        of(tenant, agent.map(AgentId::as_str).unwrap_or_default().as_bytes())
    }

    /// The shard of a ledger row: that of the requesting tree, unless the row is shared.
    #[must_use]
    pub fn of_ledger(tenant: TenantId, root: &SessionId, key: &LedgerKey) -> Self {
        if key.is_shared() { of(tenant, &key.0) } else { Self::of(tenant, root) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fingerprint::{ExclusionScope, Fingerprint};

    fn session(name: &str) -> SessionId {
        SessionId::parse("session", name).expect("valid")
    }

    /// Stored rows depend on these values.
    #[test]
    fn the_hash_never_changes() {
        let shard = |tenant, name| Shard::of(TenantId(tenant), &session(name)).0;
        let known = [(1, "s"), (1, "session-1"), (1, "session-2"), (2, "session-1"), (1, "Über/thread:42")];
        assert_eq!(known.map(|(tenant, name)| shard(tenant, name)), [1001, 708, 829, 791, 843]);
        assert_eq!(Shard::of_counters(TenantId(1), None), Shard(800));
    }

    #[test]
    fn names_that_count_up_are_spread_evenly() {
        let mut rows = vec![0_u32; usize::from(SHARDS)];
        for n in 0..102_400 {
            rows[Shard::of(TenantId(1), &session(&format!("session-{n}"))).0 as usize] += 1;
        }
        let (least, most) = (rows.iter().min(), rows.iter().max());
        assert!(least > Some(&55) && most < Some(&150), "{least:?} to {most:?}, 100 on average");
    }

    #[test]
    fn a_write_of_one_tree_is_with_its_tree_and_what_is_shared_has_its_own_place() {
        let (tenant, root, other) = (TenantId(1), session("root"), session("other"));
        let fingerprint = Fingerprint([7; 32]);
        let own = LedgerKey::of(ExclusionScope::Tree(&root), &fingerprint);
        assert_eq!(Shard::of_ledger(tenant, &root, &own), Shard::of(tenant, &root));
        let shared = LedgerKey::of(ExclusionScope::Tenant, &fingerprint);
        assert_eq!(Shard::of_ledger(tenant, &root, &shared), Shard::of_ledger(tenant, &other, &shared));
    }
}
