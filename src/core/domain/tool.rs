//! Tool policy: the declared facts about a tool.

use std::sync::Arc;

use super::{
    closed_set::closed_set,
    effect::{DuplicateScope, Effect, EffectKind, Freshness, ResourceTemplate},
    json::Json,
};

/// Default lease of a call, in milliseconds: ten minutes.
pub const LEASE_MS_DEFAULT: u64 = 600_000;

closed_set! {
    /// Risk of a tool without a tier.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum RiskLevel {
        /// Allowed, as on an allowlist.
        Low = "LOW",
        /// Needs a grant per conversation.
        Medium = "MEDIUM",
        /// Needs approval.
        High = "HIGH",
    }
}

/// Meaning of a tool's empty result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyMeans {
    /// No matches.
    NoMatches,
    /// The query was probably wrong.
    Suspect,
}

/// Storage mode of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StorageMode {
    /// Whole, with secrets.
    Raw,
    /// Redacted.
    #[default]
    Full,
    /// Redacted; the digest alone for a text that is no JSON.
    Redacted,
    /// The digest alone.
    Hash,
}

/// Place of the idempotency key in an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectAs {
    /// A header of that name.
    Header(Arc<str>),
    /// An argument of that name, hidden from the model.
    Argument(Arc<str>),
}

/// The declared facts about one tool; the default declares nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// Effect on its resource.
    pub effect: EffectKind,
    /// Resource, by its arguments.
    pub resource: Option<ResourceTemplate>,
    /// Freshness of a read's results.
    pub fresh: Freshness,
    /// A write whose repetition does harm.
    pub once: bool,
    /// A write whose repetition is harmless.
    pub idempotent: bool,
    /// A write whose provider honors the idempotency key.
    pub key_honoured: bool,
    /// A write whose identical repetition is intended: scroll, append, take from a queue.
    pub repeatable: bool,
    /// Scope of duplicate protection.
    pub share: DuplicateScope,
    /// Risk, without a tier.
    pub risk: Option<RiskLevel>,
    /// Terminal: never refused nor charged, as `final_answer`.
    pub terminal: bool,
    /// Lease of a permitted call, after which its outcome is unknown, in milliseconds.
    pub lease_ms: u64,
    /// JSON pointers into the result (`*` for any element) of its volatile fields.
    pub volatile: Vec<String>,
    /// JSON pointers to `is_complete` and `total_matches` in the result, used where the report has none.
    pub result_map: (Option<String>, Option<String>),
    /// A JSON pointer to the failure in the result; absent, only unmistakable failures are detected.
    pub failure_at: Option<String>,
    /// Meaning of an empty result; absent is unknown.
    pub empty_means: Option<EmptyMeans>,
    /// Default cost of a call, in micro-dollars.
    pub cost_micros: u64,
    /// Declared retryability, as a prior before there is evidence.
    pub retryable: Option<bool>,
    /// Suggested alternatives when a call is refused.
    pub suggested_next: Vec<String>,
    /// Place of its idempotency key.
    pub inject_as: Option<InjectAs>,
    /// Storage modes of its arguments and of its results.
    pub stored: (StorageMode, StorageMode),
    /// Shadow mode: refusals are only recorded.
    pub shadow: bool,
    /// True for calls that may run while the store is unavailable; default: none.
    pub runs_without_store: bool,
}

impl Default for ToolSpec {
    fn default() -> Self {
        Self {
            effect: EffectKind::Unknown,
            resource: None,
            fresh: Freshness::Usual,
            once: false,
            idempotent: false,
            key_honoured: false,
            repeatable: false,
            share: DuplicateScope::Tree,
            risk: None,
            terminal: false,
            lease_ms: LEASE_MS_DEFAULT,
            volatile: Vec::new(),
            result_map: (None, None),
            failure_at: None,
            empty_means: None,
            cost_micros: 0,
            retryable: None,
            suggested_next: Vec::new(),
            inject_as: None,
            stored: (StorageMode::Full, StorageMode::Full),
            shadow: false,
            runs_without_store: false,
        }
    }
}

impl ToolSpec {
    /// Effect kind; `once` and `repeatable` make it a write.
    #[must_use]
    pub fn kind(&self) -> EffectKind {
        if self.once || self.repeatable { EffectKind::Write } else { self.effect }
    }

    /// Effect of a call with these arguments.
    #[must_use]
    pub fn effect_of(&self, arguments: &Json) -> Effect {
        Effect {
            kind: self.kind(),
            resource: self.resource.as_ref().map(|template| template.fill(arguments)),
            once: self.once,
            idempotent: self.idempotent,
            key_honoured: self.key_honoured,
            repeatable: self.repeatable,
            in_steps: false,
            share: if self.once { DuplicateScope::Tenant } else { self.share },
        }
    }
}
