//! Common arguments of commands for coding agents: the host, and the calls permitted without a server.

use std::path::Path;

use clap::{ValueEnum, builder::PossibleValue};

use crate::hosts::Host;

/// Name of the program that is `callgate hook` alone.
pub(crate) const HOOK_PROGRAM: &str = "callgate-hook";

/// True for the path of [`HOOK_PROGRAM`], which takes the arguments of `hook` without that word.
pub(crate) fn is_hook_program(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == HOOK_PROGRAM)
}

impl ValueEnum for Host {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()).help(self.title()))
    }
}

/// Tools that run while the server is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOpen {
    /// All tools
    All,
    /// The host's own reading tools, without shell commands
    Reads,
}
