//! What the plane is told about a tool.

use std::sync::Arc;

use super::{
    effect::{Effect, EffectKind, Fresh, ResourceTemplate, Share},
    json::Json,
};

/// Lease of a call whose tool names none, in milliseconds: ten minutes.
pub const LEASE_MS_DEFAULT: u64 = 600_000;

/// How dangerous a tool is, where no tier of the policy names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// As in an allowlist.
    Low,
    /// As with a grant per conversation.
    Medium,
    /// A person is asked.
    High,
}

impl Risk {
    /// The name used in the policy file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "LOW",
            Self::Medium => "MEDIUM",
            Self::High => "HIGH",
        }
    }
}

/// What a bare empty result of a tool says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyMeans {
    /// There is nothing.
    NoMatches,
    /// The query was probably wrong.
    Suspect,
}

/// How much of a text is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stored {
    /// All of it, secrets too.
    Raw,
    /// All but secrets.
    #[default]
    Full,
    /// The same; of a text that is no JSON its digest only.
    Redacted,
    /// Its digest only.
    Hash,
}

/// Where an idempotency key goes into an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectAs {
    /// A header of that name.
    Header(Arc<str>),
    /// An argument of that name, which the model never sees.
    Argument(Arc<str>),
}

/// The declared facts about one tool; the default declares nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// What it does to its resource.
    pub effect: EffectKind,
    /// What it touches, by its arguments.
    pub resource: Option<ResourceTemplate>,
    /// How long an answer of a read stands in for another.
    pub fresh: Fresh,
    /// A write whose repetition harms.
    pub once: bool,
    /// A write whose repetition is harmless.
    pub idempotent: bool,
    /// A write whose provider honours the idempotency key.
    pub key_honoured: bool,
    /// A write whose identical repetition is meant: scroll, append, take from a queue.
    pub repeatable: bool,
    /// Who shares what it has done.
    pub share: Share,
    /// How dangerous it is, where no tier names it.
    pub risk: Option<Risk>,
    /// A way out, never blocked nor charged: `final_answer`.
    pub terminal: bool,
    /// How long a permitted call may run before its outcome counts as unknown, in milliseconds.
    pub lease_ms: u64,
    /// JSON pointers into the result (`*` for any element) of what changes without meaning anything.
    pub volatile: Vec<String>,
    /// JSON pointers to `is_complete` and `total_matches` in the result, for reports that do not tell.
    pub result_map: (Option<String>, Option<String>),
    /// A JSON pointer to what tells a failure in the result; absent, only unmistakable ones are seen.
    pub failure_at: Option<String>,
    /// What a bare empty result says; absent is not known.
    pub empty_means: Option<EmptyMeans>,
    /// What a call costs when the caller gives no estimate, in micro-dollars.
    pub cost_micros: u64,
    /// What its owner says of its failures before there is evidence: are they worth a retry?
    pub retryable: Option<bool>,
    /// What to call instead when a call of this tool is refused.
    pub suggested_next: Vec<String>,
    /// Where its idempotency key goes.
    pub inject_as: Option<InjectAs>,
    /// How much of its arguments and of its results is stored.
    pub stored: (Stored, Stored),
    /// True when its refusals are only recorded.
    pub shadow: bool,
    /// True when its calls may run while the store is away; the default is that none may.
    pub runs_without_store: bool,
}

impl Default for ToolSpec {
    fn default() -> Self {
        Self {
            effect: EffectKind::Unknown,
            resource: None,
            fresh: Fresh::Usual,
            once: false,
            idempotent: false,
            key_honoured: false,
            repeatable: false,
            share: Share::Tree,
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
            stored: (Stored::Full, Stored::Full),
            shadow: false,
            runs_without_store: false,
        }
    }
}

impl ToolSpec {
    /// What it does in general: `once` and `repeatable` make it a write.
    #[must_use]
    pub fn kind(&self) -> EffectKind {
        if self.once || self.repeatable { EffectKind::Write } else { self.effect }
    }

    /// What a call with these arguments does to the world.
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
            share: if self.once { Share::Tenant } else { self.share },
        }
    }
}
