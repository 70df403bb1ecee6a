//! What the owner of a fleet has decided: facts about tools, the rules' parameters, and how they hold. This room knows
//! the file's form; it must not know files (text comes in), the store, the network or a clock.

mod compile;
mod error;
mod file;
pub mod lint;
pub mod tools;

use std::collections::BTreeMap;

pub use compile::compile;
pub use error::PolicyError;

use crate::{
    domain::{
        call::{Proposal, Request},
        fingerprint::{ArgsDigest, Fingerprint},
        ids::ToolName,
        tool::ToolSpec,
    },
    retry::advice,
    rules::{Mode, RuleSet},
};

/// How long a question to a person stays open, in milliseconds: one hour.
pub const APPROVAL_TTL_MS_DEFAULT: u64 = 3_600_000;

/// A policy, ready to judge by.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Names this policy in every decision it makes: `default`, or the first 16 hexadecimal digits of its hash.
    pub version: String,
    /// Whether refusals hold. `Off` is not meant for a whole policy and counts as `Shadow`.
    pub mode: Mode,
    /// The rules' parameters.
    pub rules: RuleSet,
    /// When a retry is worth it.
    pub retry: advice::Params,
    /// How long a question to a person stays open, in milliseconds.
    pub approval_ttl_ms: u64,
    /// What is known about tools, by name.
    tools: BTreeMap<String, ToolSpec>,
    undeclared: ToolSpec,
}

impl Default for Policy {
    /// The policy that needs no file: nothing is known about any tool, and every limit is wide.
    fn default() -> Self {
        Self {
            version: "default".to_owned(),
            mode: Mode::Enforce,
            rules: RuleSet::default(),
            retry: advice::Params::default(),
            approval_ttl_ms: APPROVAL_TTL_MS_DEFAULT,
            tools: BTreeMap::new(),
            undeclared: ToolSpec::default(),
        }
    }
}

impl Policy {
    /// Declares a tool.
    pub fn declare(&mut self, tool: &str, spec: ToolSpec) {
        self.tools.insert(tool.to_owned(), spec);
    }

    /// What is known about a tool.
    #[must_use]
    pub fn tool(&self, name: &ToolName) -> &ToolSpec {
        self.tools.get(name.as_str()).unwrap_or(&self.undeclared)
    }

    /// Every declared tool, by name.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &ToolSpec)> {
        self.tools.iter().map(|(name, spec)| (name.as_str(), spec))
    }

    /// The request with all that the policy knows of it. This is where arguments are hashed, outside of any lock.
    #[must_use]
    pub fn propose(&self, request: Request) -> Proposal {
        let spec = self.tool(&request.tool);
        let canonical = request.arguments.canonical();
        Proposal {
            fingerprint: Fingerprint::of(&request.tool, &canonical),
            args_digest: ArgsDigest::of(&request.tool, &canonical),
            effect: spec.effect_of(&request.arguments),
            lease_ms: spec.lease_ms,
            cost_micros: request.cost_estimate_micros.unwrap_or(spec.cost_micros),
            suggested_next: spec.suggested_next.clone(),
            canonical: canonical.into(),
            request,
        }
    }
}
