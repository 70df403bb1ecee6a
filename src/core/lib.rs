//! Pure core: decides, learns and explains. It has no I/O, no clock, no lock, no log and no async; time is an
//! argument, and its boundaries are this crate's `[dependencies]`.
//!
//! | module | holds | depends on |
//! |---|---|---|
//! | [`domain`] | calls, effects, fingerprints, call trees, verdicts | – |
//! | [`retry`] | classification of failures, estimate and advice | domain |
//! | [`rules`] | one rule a file | domain, retry |
//! | [`shell`] | effects of a shell line | domain |
//! | [`policy`] | the owner's file, compiled | domain, retry, rules, shell |
//! | [`engine`] | two pure functions: evaluate, record | domain, retry, rules, policy |
//! | [`offline`] | replay, backtest and suggestions on recorded calls | domain, retry, rules, policy, engine |
//! | [`tool_list`] | lists of tools: read, imported, one lint a file | domain |

#[cfg(test)]
extern crate self as callgate_core;

pub mod domain;
pub mod engine;
pub mod offline;
pub mod policy;
pub mod retry;
pub mod rules;
pub mod shell;
pub mod tool_list;
