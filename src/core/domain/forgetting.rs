//! Whose data is forgotten or given out, and what replicas know them by once they are forgotten.

use sha2::{Digest as _, Sha256};

use super::{
    ids::{AgentId, SessionId, TenantId, UserId},
    time::Timestamp,
};

/// Shortest name that is looked for inside of longer texts, in bytes; a shorter one is part of too many words.
pub const WORD_BYTES_MIN: usize = 4;

/// Whose data it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whom {
    /// A session.
    Session(SessionId),
    /// An agent.
    Agent(AgentId),
    /// A person whom agents worked for.
    User(UserId),
}

impl Whom {
    /// What they are, in a word.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Session(_) => "session",
            Self::Agent(_) => "agent",
            Self::User(_) => "user",
        }
    }

    /// Their name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Session(session) => session.as_str(),
            Self::Agent(agent) => agent.as_str(),
            Self::User(user) => user.as_str(),
        }
    }

    /// True when a text names them, in whatever case. What is kept of a forgetting must not.
    #[must_use]
    pub fn is_named_in(&self, text: &str) -> bool {
        holds(text, self.name())
    }
}

/// True when `text` has `name` in it, in whatever case; a short one only when it is all of it.
#[must_use]
pub fn holds(text: &str, name: &str) -> bool {
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    if name.len() < WORD_BYTES_MIN { text == name } else { text.contains(&name) }
}

/// How far a forgetting has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forgot {
    /// Call trees that were deleted.
    pub trees: u64,
    /// Their sessions.
    pub sessions: u64,
    /// What else had their name: counters, halts, entries of the audit, notes.
    pub others: u64,
    /// How much of all there is has been looked through, in percent.
    pub percent: u8,
}

/// One run of forgetting: what its marks are salted with, and the name that stands where one was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Kept with the marks.
    pub salt: Vec<u8>,
    /// In the ledger's rows that stay.
    pub nobody: String,
    /// When it began: what is done in their name from then on is new.
    pub at: Timestamp,
}

/// What a replica is told of a name that was forgotten.
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

/// Names that were forgotten together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// Whose they were.
    pub tenant: TenantId,
    /// Tells these from others.
    pub id: i64,
    /// What they are salted with.
    pub salt: Vec<u8>,
    /// One a name.
    pub marks: Vec<Mark>,
    /// When.
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
