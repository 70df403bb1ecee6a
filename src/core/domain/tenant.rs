//! Tenants: their state, quotas, usage and retention periods.

use super::{
    closed_set::closed_set,
    hashing::KeyMark,
    ids::{Invalid, TenantId},
    time::Timestamp,
};

/// Maximum length of a tenant's name, in bytes: that of a DNS label.
pub const TENANT_NAME_BYTES_MAX: usize = 63;

/// Name of the deployment's own tenant.
pub const DEFAULT_TENANT_NAME: &str = "default";
/// Minimum retention of monthly partitions, in days.
pub const MONTHS_DAYS_MIN: u32 = 30;
/// Maximum retention period, in days: a century.
pub const TERM_DAYS_MAX: u32 = 36_500;

closed_set! {
    /// Service state of a tenant.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TenantState {
        /// Served.
        Active = "active",
        /// Not served; its data is kept.
        Suspended = "suspended",
        /// Final: its data is being erased, or was.
        Deleted = "deleted",
    }
}

/// Quotas of a tenant; none is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Calls per second on each replica.
    pub calls_per_second: Option<u64>,
    /// Stored call trees.
    pub sessions: Option<u64>,
    /// Bytes of stored calls and outcomes.
    pub stored_bytes: Option<u64>,
    /// Open approval requests.
    pub approvals_open: Option<u64>,
}

/// Retention periods of a tenant, in days; none is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// Texts of its calls: arguments, results, errors, notes.
    pub words: Option<u32>,
    /// Its call trees and their evidence, from the last activity on.
    pub calls: Option<u32>,
    /// For the deployment's own tenant: monthly partitions of all tenants.
    pub months: Option<u32>,
}

closed_set! {
    /// Kind of a quota.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Quota {
        /// Calls in a second.
        CallsPerSecond = "calls_per_second",
        /// Call trees.
        Sessions = "sessions",
        /// Bytes.
        StoredBytes = "stored_bytes",
        /// Open approval requests.
        ApprovalsOpen = "approvals_open",
    }
}

/// Usage of a tenant at the last count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// Call trees.
    pub sessions: u64,
    /// Bytes of calls and outcomes.
    pub stored_bytes: u64,
    /// Time of the count; none before the first.
    pub at: Option<Timestamp>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Id in every table.
    pub id: TenantId,
    /// Unique name for people and credentials, never reused, not even after deletion.
    pub name: String,
    /// State.
    pub state: TenantState,
    /// Time, actor and reason of the last state change.
    pub since: (Timestamp, String, String),
    /// Quotas.
    pub quotas: Quotas,
    /// Usage.
    pub used: TenantUsage,
    /// Retention periods.
    pub terms: Terms,
    /// Identifier of its hashing key; none for unkeyed hashes and unencrypted values.
    pub mark: Option<KeyMark>,
    /// Creation time.
    pub created_at: Timestamp,
}

/// Validates a tenant's name: it must fit into a path, a label and a certificate.
///
/// # Errors
/// [`Invalid`] naming `field`.
pub fn tenant_name(field: &str, text: &str) -> Result<String, Invalid> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let ends = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
    let bytes = text.as_bytes();
    if bytes.len() <= TENANT_NAME_BYTES_MAX
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().copied().all(is_plain)
    {
        return Ok(text.to_owned());
    }
    let problem = format!(
        "must be 1 to {TENANT_NAME_BYTES_MAX} small letters of a to z, digits and hyphens, with none of these at an end"
    );
    Err(Invalid::new(field, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_named_like_a_label() {
        for name in ["default", "team-7", "a", &"x".repeat(63)] {
            assert_eq!(tenant_name("name", name).as_deref(), Ok(name));
        }
        for name in ["", "Team", "-a", "a-", "a b", "a_b", "ä", &"x".repeat(64)] {
            assert_eq!(tenant_name("name", name).expect_err("refused").field, "name", "{name}");
        }
    }

    #[test]
    fn a_state_is_known_by_its_name() {
        for state in TenantState::ALL {
            assert_eq!(TenantState::from_name(state.as_str()), Some(state));
        }
        assert_eq!(TenantState::from_name("gone"), None);
    }
}
