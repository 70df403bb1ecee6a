//! Rules: one file each, a pure function from a context to an optional finding. A rule's parameters read their own part
//! of the policy. This module knows domain types, not the store, the network or a clock. A rule never fails and never
//! sees another rule.
//!
//! The file's name is the rule's id in findings, its key in the policy, its metric label and its anchor in the docs. A
//! new rule is one file and one line in [`RULES`] beside its `mod`, with its stories, keys and section
//! (CONTRIBUTING.md#a-rule).

pub mod condition;
mod context;
mod evidence;
mod explained_call;
pub mod levels;
mod rule;
mod set;
#[cfg(test)]
pub(crate) mod testing;

pub mod after_compaction;
pub mod budget;
pub mod bulkhead;
pub mod churn;
pub mod cycle;
pub mod global_circuit_breaker;
pub mod growth;
pub mod halted;
pub mod phase;
pub mod poll;
pub mod refused;
pub mod repeat;
pub mod requires;
pub mod same_call;
pub mod same_error;
pub mod same_result;
pub mod same_success;
pub mod schema;
pub mod side_effects;
pub mod tamper_protection;
pub mod tier;
pub mod tool_circuit_breaker;
pub mod unknown_tool;

pub use context::{RuleContext, past};
pub use explained_call::RecordedCall;
pub use rule::{BreakScope, CountCeiling, PolicySection, Rule, RuleLogic, SectionProblem, take_in};
pub use set::{Mode, PLACEHOLDERS, RuleSet, RuleSlot, WINDOW_DEFAULT};

use crate::domain::manual::manual;

macro_rules! rule {
    ($id:ident) => {
        $id::RULE.manual(manual!(concat!(stringify!($id), ".rs")))
    };
}

/// All rules; among equal findings the first one decides.
pub const RULES: &[Rule] = &[
    rule!(halted),
    rule!(tamper_protection),
    rule!(unknown_tool),
    rule!(schema),
    rule!(phase),
    rule!(requires),
    rule!(same_call),
    rule!(repeat),
    rule!(same_success),
    rule!(poll),
    rule!(cycle),
    rule!(global_circuit_breaker),
    rule!(same_error),
    rule!(same_result),
    rule!(churn),
    rule!(refused),
    rule!(after_compaction),
    rule!(side_effects),
    rule!(tool_circuit_breaker),
    rule!(bulkhead),
    rule!(growth),
    rule!(budget),
    rule!(tier),
];
