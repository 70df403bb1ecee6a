//! The text that belongs into the system prompt of an agent behind the gate: what it may spend, what becomes of
//! repeated calls, in which order things are done, and when no tool is needed. A refusal that the model was told of
//! beforehand is understood the first time.

use std::fmt::Write as _;

use super::Policy;
use crate::{
    domain::{budget::Scope, tool::ToolSpec},
    rules::{
        Rule, budget, phase, same_call,
        side_effects::{self, SecondChange},
        tier,
    },
};

impl Policy {
    /// The text, by what holds; nothing is said of rules that do not.
    #[must_use]
    pub fn prompt(&self) -> String {
        let holds = |rule: &Rule| self.holds(rule.id, &ToolSpec::default());
        let mut text = String::from("# How your tool calls are judged\n\n");
        text.push_str(
            "Every tool call is judged before it runs. A refused call comes back as a tool result with a `status`, a \
             `message` that says why and what to do next, and `retryable`. Do what the message says; do not ask again \
             in other words.\n",
        );
        self.no_tool_needed(&mut text);
        if holds(&budget::RULE) {
            self.limits(&mut text);
        }
        if holds(&same_call::RULE) {
            text.push_str(
                "\n## Repeated calls\n\n- The same call again, with nothing changed in between, is not run: you are \
                 given its earlier result.\n- After an error, `retryable` and `retry_after_ms` say whether and when to \
                 call again. When it says false, change the arguments by what the error says, use another tool, or \
                 tell the user.\n- When a call may have taken effect and nobody knows, check before you do it again.\n",
            );
        }
        if holds(&phase::RULE) {
            self.phases(&mut text);
        }
        if holds(&tier::RULE) {
            self.tiers(&mut text);
        }
        text
    }

    fn no_tool_needed(&self, text: &mut String) {
        text.push_str(
            "\n## When no tool is needed\n\nAnswer at once when the conversation already holds the answer, when the \
             user only wants an opinion or a rewording, or when no tool here can find it out. Ask the user when a \
             required value is missing: never make one up.\n",
        );
        let ways: Vec<&str> = self.tools().filter(|(_, spec)| spec.terminal).map(|(name, _)| name).collect();
        if !ways.is_empty() {
            let _ = writeln!(text, "These are always open to you and cost nothing: {}.", ways.join(", "));
        }
    }

    fn limits(&self, text: &mut String) {
        let run = self.rules.get::<budget::Params>().of(Scope::Run).iter();
        let limits: Vec<String> = run.map(|(dimension, limit)| dimension.in_words(limit)).collect();
        if limits.is_empty() {
            return;
        }
        let _ = write!(
            text,
            "\n## Budget\n\nOne turn has {}. Refused calls count as steps too. Plan within that; when tools are \
             disabled, give the best final answer from what you have.\n",
            limits.join(", ")
        );
    }

    fn phases(&self, text: &mut String) {
        let phases = &self.rules.get::<phase::Params>().phases;
        if phases.is_empty() {
            return;
        }
        text.push_str("\n## Order\n\n");
        for phase in phases {
            let tools = phase.tools.as_ref().map_or("no tools: think", |tools| tools.as_str());
            let next = if phase.next.is_empty() { "the end".to_owned() } else { phase.next.join(" or ") };
            let _ = writeln!(text, "- {}: {tools}. Leads to {next}.", phase.name);
        }
        text.push_str("When you made a plan, do its writes in its order; a write out of order is refused.\n");
        if let Some(back) = &self.rules.get::<phase::Params>().after_failed_write {
            let _ = writeln!(text, "A write that failed for good leads back to {back}.");
        }
    }

    fn tiers(&self, text: &mut String) {
        let mut lines = Vec::new();
        for tier in &self.rules.get::<tier::Params>().tiers {
            let tools = tier.tools.as_str();
            let reason = if tier.require_reason { ", and needs a justification from you" } else { "" };
            match tier.action {
                tier::Action::Allow => {}
                tier::Action::Grant => {
                    lines.push(format!("- {tools}: {} calls in one conversation{reason}.", tier.grant.ceiling));
                }
                tier::Action::Ask => lines.push(format!("- {tools}: a person must approve each call{reason}.")),
                tier::Action::Deny => lines.push(format!("- {tools}: not allowed.")),
            }
        }
        if self.rules.get::<side_effects::Params>().second_change != SecondChange::Allow
            && self.tools().any(|(_, spec)| spec.resource.is_some())
        {
            lines.push("- A second change of one thing by another call is held for a person.".to_owned());
        }
        if !lines.is_empty() {
            let _ = write!(
                text,
                "\n## What needs more than asking\n\n{}\nWhile a call waits for a person, go on with other work or \
                 tell the user.\n",
                lines.join("\n")
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::compile;

    #[test]
    fn what_holds_is_said_and_what_does_not_is_not() {
        let text = compile(include_str!("../../deploy/policy.example.yaml")).expect("a good policy").prompt();
        for part in [
            "One turn has 200 steps",
            "ACT: *.",
            "delete_*: a person must approve each call, and needs a",
            "create_*|update_*|set_*: 10 calls",
            "clarify, final_answer",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        let shadowed = compile("policy_engine: {mode: shadow}").expect("a good policy").prompt();
        assert!(!shadowed.contains("## Budget") && !shadowed.contains("## Repeated"), "{shadowed}");
    }
}
