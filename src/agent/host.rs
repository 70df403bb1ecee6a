//! What the commands for coding agents take alike: which host, and what runs while nobody can be asked.

use clap::{ValueEnum, builder::PossibleValue};

use crate::hosts::Host;

impl ValueEnum for Host {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()).help(self.title()))
    }
}

/// What runs although nobody could be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOpen {
    /// All tools
    All,
    /// The host's own reading tools, without shell commands
    Reads,
}
