//! Changes of the active policy: what is asked for, and the results.

use super::policy_check::PolicyProblem;
use callgate_core::domain::{audit::Actor, revision::Revision};

/// Result of applying a policy.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplyOutcome {
    /// It is stored, and active when it was to be.
    Stored {
        /// Its hash.
        hash: String,
        /// Its activation.
        revision: Option<Revision>,
        /// Warnings about it.
        warnings: Vec<PolicyProblem>,
    },
    /// It is no policy: nothing was stored.
    Invalid(Vec<PolicyProblem>),
    /// Another revision is active than the one that was expected.
    Changed {
        /// The active one.
        revision: u64,
    },
}

/// Result of activating a stored policy.
#[derive(Debug, Clone, PartialEq)]
pub enum ActivationOutcome {
    /// It is active.
    Active(Revision),
    /// This build cannot read it: another one has stored it. Nothing was activated.
    Invalid(Vec<PolicyProblem>),
    /// Another revision is active than the one that was expected.
    Changed {
        /// The active one; 0 when none is.
        revision: u64,
    },
    /// No such policy is stored, or none was active before.
    Unknown,
}

/// Action on an applied policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// Only check it.
    Check,
    /// Store it.
    Store,
    /// Store it and make it the active one.
    Activate,
}

/// Author of a change of policies, with note and condition.
#[derive(Debug, Clone, Copy)]
pub struct Author<'a> {
    /// The actor.
    pub by: &'a Actor,
    /// The note of the change.
    pub note: &'a str,
    /// Only when this revision is active; any, when absent.
    pub expected: Option<u64>,
}
