//! Tenants: whose plane it is, whether they are served, and how much of it they may use.

use super::{
    hashing::KeyMark,
    ids::{Invalid, TenantId},
    time::Timestamp,
};

/// Longest name of a tenant, in bytes: that of a DNS label.
pub const TENANT_NAME_BYTES_MAX: usize = 63;

/// The name of the tenant that is the plane's own.
pub const DEFAULT_TENANT_NAME: &str = "default";
/// Fewest days after which months are dropped.
pub const MONTHS_DAYS_MIN: u32 = 30;
/// Most days of any term: a century.
pub const TERM_DAYS_MAX: u32 = 36_500;

/// Whether a tenant is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantState {
    /// It is.
    Active,
    /// Nothing of it is judged or told, and nothing of it is lost.
    Suspended,
    /// For good: what it stored is being erased, or was.
    Deleted,
}

impl TenantState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Active, Self::Suspended, Self::Deleted];

    /// The name used in commands and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Deleted => "deleted",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// How much of the plane a tenant may use; without a number, as much as there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Calls that it may ask each replica for in a second.
    pub calls_per_second: Option<u64>,
    /// Call trees that it may have stored.
    pub sessions: Option<u64>,
    /// Bytes that its calls and outcomes may take.
    pub stored_bytes: Option<u64>,
    /// Questions to people that it may have open.
    pub approvals_open: Option<u64>,
}

/// How many days something of a tenant is kept; without a number, for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// The words of its calls: arguments, results, errors, notes.
    pub words: Option<u32>,
    /// Its call trees, from when they were last heard of, and the evidence beside them.
    pub calls: Option<u32>,
    /// Of the plane's own tenant alone: months, those of all tenants.
    pub months: Option<u32>,
}

/// One of the quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// Calls in a second.
    CallsPerSecond,
    /// Call trees.
    Sessions,
    /// Bytes.
    StoredBytes,
    /// Open questions.
    ApprovalsOpen,
}

impl Quota {
    /// The name used in commands, errors and the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CallsPerSecond => "calls_per_second",
            Self::Sessions => "sessions",
            Self::StoredBytes => "stored_bytes",
            Self::ApprovalsOpen => "approvals_open",
        }
    }
}

/// What a tenant uses, as it was counted last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Call trees.
    pub sessions: u64,
    /// Bytes of calls and outcomes.
    pub stored_bytes: u64,
    /// When that was; none when it never was.
    pub at: Option<Timestamp>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Names it in every table.
    pub id: TenantId,
    /// Its name, as people and credentials say it. It is never used again, not after its end either.
    pub name: String,
    /// Whether it is served.
    pub state: TenantState,
    /// Since when, by whom and why.
    pub since: (Timestamp, String, String),
    /// How much it may use.
    pub quotas: Quotas,
    /// How much it uses.
    pub used: Used,
    /// How long what it has stored is kept.
    pub terms: Terms,
    /// The mark of the key of its hashes; none where there is none, and its values are stored as they are.
    pub mark: Option<KeyMark>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A name that a tenant may have: what fits into a path, a label and a certificate.
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
