//! What is known of a stored call whose rules are asked why they had nothing to say.

use super::Context;
use crate::domain::{effect::EffectKind, tool::ToolSpec};

/// What a silent rule says when there is no more to say.
pub(super) const NOTHING: &str = "nothing to say";

/// A stored call.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its tool.
    pub tool: &'a str,
    /// What the policy knows of the tool.
    pub spec: &'a ToolSpec,
    /// Whether the policy declares the tool.
    pub declared: bool,
    /// Whether the tool's arguments are checked against a schema.
    pub has_schema: bool,
    /// Who approved it, which silences the rules that ask.
    pub approved_by: Option<&'a str>,
    /// What the rules looked at, as far as stored calls tell; none when it cannot be made anew.
    pub cx: Option<Context<'a>>,
}

impl Asked<'_> {
    /// What the call does, if that is known.
    #[must_use]
    pub fn kind(&self) -> Option<EffectKind> {
        self.cx.map(|cx| cx.proposal.effect.kind)
    }

    /// Who approved it, in words.
    #[must_use]
    pub fn approved(&self) -> Option<String> {
        self.approved_by.map(|by| format!("{by} approved it"))
    }
}
