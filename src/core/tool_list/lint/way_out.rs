//! way_out: a list without a tool for asking back, or for doing nothing.
//!
//! Reports a list of three or more tools none of which asks the user, hands over to a person, or says that no tool is
//! needed.
//!
//! Why: a model that is made to call a tool and has no right one calls a wrong one with invented arguments. With a way
//! out its doubt becomes a question.
//!
//! Known problems: the list of one MCP server is a part of what the model sees; allow this lint there and let it judge
//! all lists together. An agent whose answers need no tool has its way out in the conversation.

use super::{LintReport, ListFacts};

/// Minimum number of tools in a judged list.
const TOOLS_MIN: usize = 3;
const REASON: &str = "a model without a right tool calls a wrong one with invented arguments";

/// One report a list.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    if facts.tools.len() < TOOLS_MIN || facts.tools.iter().any(super::ToolFacts::is_way_out) {
        return Vec::new();
    }
    let message = format!("none of the {} tools asks back or says that no tool is needed", facts.tools.len());
    let better = "add `ask_user` (\"USE WHEN a required argument is unknown or two tools could be meant. \
                  Never guess: ask.\", one string `question`), with `terminal: true` in the policy";
    vec![facts.report(message, REASON, better.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn a_list_that_leaves_only_acting_is_noted() {
        reports(
            "way_out",
            "[{name: a}, {name: b}, {name: no_reply}]",
            "note -: none of the 3 tools asks back or says that no tool is needed
             better: add `ask_user` (\"USE WHEN a required argument is unknown or two tools could be meant. \
             Never guess: ask.\", one string `question`), with `terminal: true` in the policy",
        );
    }

    #[test]
    fn one_way_out_suffices_and_a_short_list_is_no_list() {
        for way in ["clarify", "no_tool_needed", "transfer_to_human_agents", "finalAnswer"] {
            silent("way_out", &format!("[{{name: a}}, {{name: b}}, {{name: {way}}}]"));
        }
        silent("way_out", "[{name: a}, {name: b}]");
    }
}
