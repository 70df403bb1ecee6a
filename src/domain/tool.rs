//! What the plane is told about a tool.

use super::{
    effect::{Effect, EffectKind, ResourceTemplate},
    json::Json,
};

/// Lease of a call whose tool names none, in milliseconds: ten minutes.
pub const LEASE_MS_DEFAULT: u64 = 600_000;

/// The declared facts about one tool; the default declares nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// What it does to its resource.
    pub effect: EffectKind,
    /// What it touches, by its arguments.
    pub resource: Option<ResourceTemplate>,
    /// A write whose repetition harms.
    pub once: bool,
    /// A write whose repetition is harmless.
    pub idempotent: bool,
    /// How long a permitted call may run before its outcome counts as unknown, in milliseconds.
    pub lease_ms: u64,
    /// JSON pointers into the result (`*` for any element) of what changes without meaning anything.
    pub volatile: Vec<String>,
    /// What a call costs when the caller gives no estimate, in micro-dollars.
    pub cost_micros: u64,
    /// What its owner says of its failures before there is evidence: are they worth a retry?
    pub retryable: Option<bool>,
    /// What to call instead when a call of this tool is refused.
    pub suggested_next: Vec<String>,
}

impl Default for ToolSpec {
    fn default() -> Self {
        Self {
            effect: EffectKind::Unknown,
            resource: None,
            once: false,
            idempotent: false,
            lease_ms: LEASE_MS_DEFAULT,
            volatile: Vec::new(),
            cost_micros: 0,
            retryable: None,
            suggested_next: Vec::new(),
        }
    }
}

impl ToolSpec {
    /// What a call with these arguments does to the world. `once` makes it a write.
    #[must_use]
    pub fn effect_of(&self, arguments: &Json) -> Effect {
        Effect {
            kind: if self.once { EffectKind::Write } else { self.effect },
            resource: self.resource.as_ref().map(|template| template.fill(arguments)),
            once: self.once,
            idempotent: self.idempotent,
        }
    }
}
