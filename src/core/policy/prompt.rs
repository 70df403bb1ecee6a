//! System prompt section for agents behind the gate: budgets, handling of repeated calls, order of steps, and when no
//! tool is needed. A model that was told a rule beforehand understands its refusal the first time.

use std::fmt::Write as _;

use super::Policy;
use crate::{
    domain::{budget::BudgetScope, time::wait_in_words, tool::ToolSpec},
    rules::{
        Rule, budget, phase, requires, same_call,
        side_effects::{self, SecondChange},
        tier,
    },
};

impl Policy {
    /// The text for the enforced rules.
    #[must_use]
    pub fn prompt(&self) -> String {
        let holds = |rule: &Rule| self.holds(rule.id, &ToolSpec::default());
        let mut text = String::from("# How your tool calls are judged\n\n");
        text.push_str(
            "Every tool call is judged before it runs. A refused call comes back as a tool result with a `status`, a \
             `message` that says why and what to do next, and `retryable`. Do what the message says; do not ask again \
             in other words.\n",
        );
        self.write_no_tool_needed(&mut text);
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
        self.loops(&mut text);
        if holds(&phase::RULE) {
            self.phases(&mut text);
        }
        if holds(&requires::RULE) {
            self.steps(&mut text);
        }
        if holds(&tier::RULE) {
            self.tiers(&mut text);
        }
        text
    }

    fn write_no_tool_needed(&self, text: &mut String) {
        text.push_str(
            "\n## When no tool is needed\n\n\
             - The conversation already holds the answer, or an earlier result does: give it.\n\
             - The user wants an opinion, a rewording, a translation, a summary of what was said, or simple \
             arithmetic: answer at once.\n\
             - It is general knowledge that does not change, and no tool here holds something newer.\n\
             - No tool here can find it out: say so.\n\
             - A required value is missing: ask the user, and never make one up.\n\n\
             A tool is needed for what is true now (states, prices, files, records), for what only this system knows, \
             and for every change.\n",
        );
        let ways: Vec<&str> = self.tools().filter(|(_, spec)| spec.terminal).map(|(name, _)| name).collect();
        if !ways.is_empty() {
            let _ = writeln!(text, "These are always open to you and cost nothing: {}.", ways.join(", "));
        }
    }

    fn limits(&self, text: &mut String) {
        let run = self.rules.get::<budget::Params>().of(BudgetScope::Run).iter();
        let limits: Vec<String> = run.map(|(dimension, limit)| dimension.describe_amount(limit)).collect();
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

    /// The enforced loop detectors with their levels.
    fn loops(&self, text: &mut String) {
        let mut lines = Vec::new();
        for slot in self.rules.iter().filter(|slot| self.holds(slot.rule.id, &ToolSpec::default())) {
            let Some((levels, what)) = slot.levels().zip(slot.rule.summary()) else { continue };
            let steps = [("told", levels.warning), ("refused", levels.critical), ("stopped", levels.break_at)];
            let steps: Vec<String> =
                steps.into_iter().filter_map(|(what, at)| Some(format!("{what} at {}", at?))).collect();
            if !steps.is_empty() {
                lines.push(format!("- {}: {}.", what.trim_end_matches('.'), steps.join(", ")));
            }
        }
        if !lines.is_empty() {
            let _ = write!(
                text,
                "\n## Going in circles\n\nSo many times in one turn, and you are told, refused, or stopped for the \
                 rest of it:\n\n{}\nWhen you are told, change something: other arguments, another tool, or an answer \
                 from what you have.\n",
                lines.join("\n")
            );
        }
    }

    /// The requirements.
    fn steps(&self, text: &mut String) {
        let by_tool = &self.rules.get::<requires::Params>().by_tool;
        if by_tool.is_empty() {
            return;
        }
        text.push_str("\n## What must come first\n\n");
        for (tool, needs) in by_tool {
            for need in needs {
                let fields: Vec<&str> = need.matching.iter().map(|(field, _)| field.as_str()).collect();
                let same =
                    if fields.is_empty() { String::new() } else { format!(", for the same {}", fields.join(" and ")) };
                let _ = writeln!(text, "- {tool}: call {} first{same}.", need.tools.as_str().replace('|', " or "));
            }
        }
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
        let (mut lines, mut justified) = (Vec::new(), false);
        for tier in &self.rules.get::<tier::Params>().tiers {
            let tools = tier.tools.as_str();
            let reason = if tier.require_reason { ", and needs a justification" } else { "" };
            justified |= tier.require_reason;
            if let Some(limit) = &tier.rate {
                let time = wait_in_words(limit.rate.per_ms);
                lines.push(format!("- {tools}: at most {} calls in {time}; more must wait.", limit.rate.calls));
            }
            match tier.action {
                tier::Action::Allow if tier.require_reason => lines.push(format!("- {tools}: needs a justification.")),
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
        if justified {
            lines.push(
                "- A justification says in one sentence why the call is needed. It belongs into the parameter that a \
                 tool has for it; where it has none, say it before the call, and the program that runs your calls \
                 hands it on."
                    .to_owned(),
            );
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
    fn prompt_holds_the_enabled_rules_alone() {
        let text = compile(include_str!("../../../deploy/policy.example.yaml")).expect("a good policy").prompt();
        for part in [
            "One turn has 1000 steps",
            "ACT: *.",
            "delete_*: a person must approve each call, and needs a",
            "A justification says in one sentence why",
            "at most 100 calls in 60 s",
            "call compose_email first, for the same draft_id",
            "- the same call, with the same result, again: told at 10, refused at 20, stopped at 30.",
            "simple arithmetic: answer at once",
            "create_*|update_*|set_*: 10 calls",
            "clarify, final_answer",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        let shadowed = compile("policy_engine: {mode: shadow}").expect("a good policy").prompt();
        assert!(["## Budget", "## Repeated", "## Going"].iter().all(|part| !shadowed.contains(part)), "{shadowed}");
    }
}
