//! Stored audit entries and the verification of their hash chain.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::{AuditOperation, WORDS};
use crate::domain::ids::TenantId;

/// A text of an entry, with the salted hash that binds it into the chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HashedText {
    /// The text; none where absent or erased.
    pub text: Option<String>,
    /// Salt, against guessing the text from its hash.
    pub salt: Option<Vec<u8>>,
    /// Hash of salt and text; none where absent.
    pub mark: Option<Vec<u8>>,
}

impl HashedText {
    /// True for a text that was erased.
    #[must_use]
    pub const fn is_erased(&self) -> bool {
        self.mark.is_some() && self.text.is_none()
    }

    /// True when the hash matches the text, or the text was erased.
    fn holds(&self) -> bool {
        match (&self.text, &self.salt, &self.mark) {
            (Some(text), Some(salt), Some(mark)) => {
                Sha256::new().chain_update(salt).chain_update(text).finalize()[..] == mark[..]
            }
            (None, None, _) => true,
            _ => false,
        }
    }
}

/// A stored entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEntry {
    /// Position in the tenant's chain, from 1.
    pub number: u64,
    /// Time, in microseconds since the Unix epoch.
    pub at_us: i64,
    /// Operation: the name of a [`AuditOperation`], perhaps of a later build.
    pub kind: String,
    /// Name, credential, address, session, description, reason.
    pub words: [HashedText; WORDS],
    /// The entry that records the last erasure of texts of this one.
    pub erased_by: Option<u64>,
    /// Hash of the previous entry.
    pub previous: Vec<u8>,
    /// Its own.
    pub hash: Vec<u8>,
}

impl ChainEntry {
    /// The hash computed from the entry. `audit_append` (migrations/0092_audit_append.sql) hashes the same bytes.
    #[must_use]
    pub fn compute_hash(&self, tenant: TenantId) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(&self.previous);
        hash.update(tenant.0.to_be_bytes());
        hash.update(self.number.to_be_bytes());
        hash.update(self.at_us.to_be_bytes());
        hash.update(u32::try_from(self.kind.len()).unwrap_or(u32::MAX).to_be_bytes());
        hash.update(&self.kind);
        for word in &self.words {
            hash.update(word.mark.as_deref().unwrap_or(&[0; 32]));
        }
        hash.finalize().to_vec()
    }
}

/// An entry's number and hash. Kept elsewhere, it proves later that nothing up to there was changed or cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    pub number: u64,
    pub hash: Vec<u8>,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, hex::encode(&self.hash))
    }
}

impl Anchor {
    /// Parses the display form of an [`Anchor`]: `12:9f86…`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (number, hash) = text.trim().split_once(':')?;
        let hash = hex::decode(hash).ok().filter(|hash| hash.len() == 32)?;
        Some(Self { number: number.parse().ok().filter(|number| *number > 0)?, hash })
    }
}

/// Verification of consecutive entries, from the first on.
#[derive(Debug)]
pub struct ChainVerifier {
    tenant: TenantId,
    anchors: Vec<Anchor>,
    last: Anchor,
    /// Problems in the order found, at most [`PROBLEMS_MAX`].
    problems: Vec<String>,
    /// Number of erased texts.
    erased: u64,
    /// References to erasing entries, and the entries that record an erasure.
    erasers: Vec<(u64, u64)>,
    forgotten: Vec<u64>,
}

/// Maximum number of reported problems per chain.
pub const PROBLEMS_MAX: usize = 100;

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainVerification {
    /// The newest entry, as an anchor to keep. None in an empty chain.
    pub last: Option<Anchor>,
    /// Number of erased texts, each covered by an entry that records the erasure.
    pub erased: u64,
    /// Problems; empty for an intact chain.
    pub problems: Vec<String>,
}

impl ChainVerifier {
    /// Starts at the first entry. The chain must contain each of `anchors`.
    #[must_use]
    pub fn new(tenant: TenantId, anchors: Vec<Anchor>) -> Self {
        let last = Anchor { number: 0, hash: vec![0; 32] };
        Self { tenant, anchors, last, problems: Vec::new(), erased: 0, erasers: Vec::new(), forgotten: Vec::new() }
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// Verifies the next entry.
    pub fn next(&mut self, entry: &ChainEntry) {
        let number = entry.number;
        let missing = self.last.number + 1..number;
        if missing.end > missing.start + 1 {
            self.problem(format!("entries {} to {} are missing", missing.start, missing.end - 1));
        } else if missing.end > missing.start {
            self.problem(format!("entry {} is missing", missing.start));
        } else if entry.previous != self.last.hash {
            self.problem(format!("entry {number} does not follow from the one before it: one of them was replaced"));
        }
        if entry.compute_hash(self.tenant) != entry.hash {
            self.problem(format!("entry {number} was changed: its hash is another one"));
        }
        for (word, name) in entry.words.iter().zip(["who", "credential", "origin", "session_id", "what", "why"]) {
            if !word.holds() {
                self.problem(format!("entry {number} was changed: `{name}` is not what was written"));
            } else if word.is_erased() {
                self.erased += 1;
                match entry.erased_by {
                    Some(by) => self.erasers.push((number, by)),
                    None => {
                        self.problem(format!("entry {number} has lost `{name}`, and no entry tells of forgetting it"))
                    }
                }
            }
        }
        if entry.kind == AuditOperation::Forgotten.as_str() {
            self.forgotten.push(number);
        }
        for at in (0..self.anchors.len()).rev().filter(|at| self.anchors[*at].number == number).collect::<Vec<_>>() {
            if self.anchors.swap_remove(at).hash != entry.hash {
                self.problem(format!("entry {number} is not the one that the anchor was taken of"));
            }
        }
        self.last = Anchor { number, hash: entry.hash.clone() };
    }

    /// Ends the verification at the recorded head of the chain.
    #[must_use]
    pub fn end(mut self, head: Option<&Anchor>) -> ChainVerification {
        let last = (self.last.number > 0).then(|| self.last.clone());
        if head.map(|head| head.number).unwrap_or_default() > self.last.number {
            let head = head.map(|head| head.number).unwrap_or_default();
            self.problem(format!(
                "the newest entries are missing: {head} were written, {} are there",
                self.last.number
            ));
        } else if head.filter(|head| head.number > 0) != last.as_ref() {
            self.problem("the newest entry is not the one that was written last".to_owned());
        }
        for anchor in std::mem::take(&mut self.anchors) {
            self.problem(format!(
                "entry {} is missing, and an anchor was taken of it: the end was cut off",
                anchor.number
            ));
        }
        for (number, by) in std::mem::take(&mut self.erasers) {
            if !self.forgotten.contains(&by) {
                self.problem(format!("entry {number} has lost words, and entry {by} does not tell of forgetting them"));
            }
        }
        ChainVerification { last, erased: self.erased, problems: self.problems }
    }
}
