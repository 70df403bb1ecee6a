//! same_tool: one tool, and nothing but it.
//!
//! Fires when the last 5, 8 or 12 calls of the run were all of the proposed tool, with any arguments and results.
//!
//! Why: an example. Tests add it to the built-in rules, and CONTRIBUTING.md#a-rule shows it.
//!
//! Known problems: an agent that reads a list page by page looks like a loop.

use callgate_core::{
    domain::{finding::Finding, reason::Reason},
    rules::{BreakScope, Rule, RuleContext, levels::DetectorLevels},
};

/// The rule.
pub(crate) const RULE: Rule = Rule::detector("same_tool", DetectorLevels::new(5, 8, 12), check, DetectorLevels::silent)
    .closes(BreakScope::Tool)
    .per_tool();

fn check(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    let streak: Vec<_> = cx.calls().take_while(|call| call.tool.as_str() == cx.tool()).collect();
    let (count, tool) = (streak.len() as u32, cx.tool());
    levels.finding(&RULE, Reason::NoProgress, count, streak.into_iter(), |_| {
        format!("The last {count} calls were all of {tool}. Use another tool, or tell the user what is missing.")
    })
}
