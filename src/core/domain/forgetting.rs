//! Erasure and export of a subject's data, and the salted marks by which replicas recognize erased names.

use sha2::{Digest as _, Sha256};

use super::{
    ids::{AgentId, SessionId, TenantId, UserId},
    time::Timestamp,
};

/// Minimum length, in bytes, of a name that is searched inside longer texts; shorter ones are part of too many words.
pub const WORD_BYTES_MIN: usize = 4;

/// Subject of an erasure or export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureSubject {
    /// A session.
    Session(SessionId),
    /// An agent.
    Agent(AgentId),
    /// A user whom agents worked for.
    User(UserId),
}

impl ErasureSubject {
    /// Kind of the subject.
    #[must_use]
    pub const fn kind_name(&self) -> &'static str {
        match self {
            Self::Session(_) => "session",
            Self::Agent(_) => "agent",
            Self::User(_) => "user",
        }
    }

    /// Name of the subject.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Session(session) => session.as_str(),
            Self::Agent(agent) => agent.as_str(),
            Self::User(user) => user.as_str(),
        }
    }

    /// True when a text contains the name, regardless of case. Records of an erasure must not.
    #[must_use]
    pub fn is_named_in(&self, text: &str) -> bool {
        holds(text, self.name())
    }
}

/// True when `text` contains `name`, regardless of case; equality is needed for a short one.
#[must_use]
pub fn holds(text: &str, name: &str) -> bool {
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    if name.len() < WORD_BYTES_MIN { text == name } else { text.contains(&name) }
}

/// Progress of an erasure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErasureProgress {
    /// Call trees that were deleted.
    pub trees: u64,
    /// Their sessions.
    pub sessions: u64,
    /// Other records with the name: counters, halts, audit entries, notifications.
    pub others: u64,
    /// Progress, in percent.
    pub percent: u8,
}

/// One erasure run: the salt of its marks, and the pseudonym that replaces the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureRun {
    /// Kept with the marks.
    pub salt: Vec<u8>,
    /// Pseudonym in the ledger rows that remain.
    pub nobody: String,
    /// Start; later data under the name is new.
    pub at: Timestamp,
}

/// Salted mark of an erased name, as distributed to replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub i64);

impl Mark {
    /// The mark of a name.
    #[must_use]
    pub fn of(salt: &[u8], name: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(salt);
        hash.update(name.as_bytes());
        let hash: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        Self(i64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// Marks of names that were erased together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureMarks {
    /// Tenant.
    pub tenant: TenantId,
    /// Unique id.
    pub id: i64,
    /// Salt.
    pub salt: Vec<u8>,
    /// One mark per name.
    pub marks: Vec<Mark>,
    /// Time.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_a_text_unless_it_is_part_of_every_word() {
        assert!(holds("as Ottilie asked", "ottilie") && holds("A", "a"));
        assert!(!holds("as she asked", "a") && !holds("", "ottilie"));
    }

    #[test]
    fn a_mark_is_of_one_name_and_one_salt() {
        assert_eq!(Mark::of(b"salt", "name"), Mark::of(b"salt", "name"));
        assert_ne!(Mark::of(b"salt", "name"), Mark::of(b"tlas", "name"));
        assert_ne!(Mark::of(b"salt", "name"), Mark::of(b"salt", "eman"));
    }
}
