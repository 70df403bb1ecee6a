//! unknown_tool: there is no such tool.
//!
//! Fires for a tool that neither `tool_schemas` nor a tier nor a phase of the policy names. A name that only a pattern
//! (`get_*`) matches, and that is similar to a declared one, counts as misspelled. Refused by default once the policy
//! declares any tool, permitted while it declares none; `unknown_tools: ask` requires approval. The second, fifth and
//! tenth such call of a run are a warning, critical and a break.
//!
//! Why: models invent tools, and nobody has considered the risks of an undeclared one.
//!
//! Known problems: a fleet that adds a tool must declare it first; `callgate tools import` writes the declarations.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use strsim::damerau_levenshtein;

use crate::domain::{
    finding::{Decision, Finding, Wording},
    pattern::Pattern,
    reason::Reason,
};

use super::{
    CountCeiling, PolicySection, RecordedCall, Rule, RuleContext, RuleLogic, SectionProblem, explained_call::NOTHING,
    levels::DetectorLevels, take_in,
};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("unknown_tool").reach(CountCeiling::WindowAndProposed);
/// Policy key for the handling of unknown tools.
const KEY: &str = "unknown_tools";
/// Maximum edit distance of a misspelled name.
const EDITS_MAX: usize = 3;

/// Decision on calls of undeclared tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownToolMode {
    /// The call is permitted.
    Allow,
    /// The call needs an approval.
    Ask,
    /// The call is refused.
    Deny,
}

/// Known tools, and the handling of others.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Handling of other tools; none for the default, which depends on whether any tool is declared.
    pub unknown: Option<UnknownToolMode>,
    /// Names of declared tools, sorted.
    pub tools: Vec<String>,
    /// Patterns of tools in tiers and phases.
    pub patterns: Vec<Pattern>,
    /// Loop levels.
    pub levels: DetectorLevels,
}

impl Default for Params {
    fn default() -> Self {
        Self { unknown: None, tools: Vec::new(), patterns: Vec::new(), levels: DetectorLevels::new(2, 5, 10) }
    }
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        check(self, cx)
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        let tool = asked.tool;
        if asked.declared {
            format!("{tool} is declared")
        } else if self.is_named(tool) {
            format!("a tier or phase names {tool}")
        } else if self.unknown() == UnknownToolMode::Allow {
            format!("{tool} is not declared, and the policy lets such tools pass")
        } else {
            asked.describe_approver().unwrap_or_else(|| NOTHING.to_owned())
        }
    }

    fn policy_sections(&self) -> Vec<PolicySection> {
        vec![PolicySection::section::<UnknownToolMode>(KEY), DetectorLevels::levels_section(RULE.id)]
    }

    fn read(&mut self, at: &str, part: Value) -> Vec<SectionProblem> {
        if at == KEY { take_in(&mut self.unknown, part) } else { take_in(&mut self.levels, part) }
    }

    fn levels(&self) -> Option<&DetectorLevels> {
        Some(&self.levels)
    }

    fn with_levels(&self, levels: DetectorLevels) -> Option<Arc<dyn RuleLogic>> {
        Some(Arc::new(Self { levels, ..self.clone() }))
    }
}

impl Params {
    /// Handling of an undeclared tool.
    #[must_use]
    pub fn unknown(&self) -> UnknownToolMode {
        self.unknown.unwrap_or(UnknownToolMode::Allow)
    }

    /// True when a tier or a phase names the tool. A wide pattern does not count, because it may match a misspelled
    /// name.
    fn is_named(&self, tool: &str) -> bool {
        let mut naming = self.patterns.iter().filter(|pattern| pattern.matches(tool)).peekable();
        naming.peek().is_some()
            && (naming.any(|pattern| pattern.as_str().split('|').any(|name| name.trim() == tool))
                || find_similar(self, tool).is_none_or(|meant| is_plural(meant, tool)))
    }
}

fn check(params: &Params, cx: &RuleContext<'_>) -> Option<Finding> {
    let tool = cx.tool();
    if params.unknown() == UnknownToolMode::Allow || cx.proposal.declared || params.is_named(tool) {
        return None;
    }
    if params.unknown() == UnknownToolMode::Ask {
        let message = format!("{tool} is not among the tools that the policy knows: a person must approve it.");
        return Some(Finding::new(RULE.id, Decision::Ask, Reason::UnknownTool, message));
    }
    let meant = find_similar(params, tool);
    let message = match &meant {
        Some(meant) => Wording::new(
            format!("There is no tool {tool}. Did you mean {meant}?"),
            format!("Call {meant}, or another of the tools that you were given."),
        ),
        None => Wording::new(
            format!("There is no tool {tool}."),
            "Use only the tools that you were given, or tell the user.",
        ),
    };
    let finding = Finding::new(RULE.id, Decision::Deny, Reason::UnknownTool, message);
    let earlier = cx.calls().filter(|call| call.reason == Some(Reason::UnknownTool)).count() as u32;
    let count = earlier + 1;
    Some(match params.levels.reached_level(count) {
        Some(level) => finding.at_level(level, count),
        None => finding,
    })
}

/// True when one name is the plural of the other: two tools, no misspelling.
fn is_plural(a: &str, b: &str) -> bool {
    a.strip_suffix('s') == Some(b) || b.strip_suffix('s') == Some(a)
}

/// The most similar known tool.
fn find_similar<'a>(params: &'a Params, tool: &str) -> Option<&'a str> {
    let near = params.tools.iter().map(|known| (damerau_levenshtein(known, tool), known.as_str()));
    let near = near.filter(|(edits, known)| *edits <= EDITS_MAX.min(known.len() / 3));
    near.min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn a_name_that_is_nearly_one_is_told_and_insisting_breaks() {
        check(
            "policy
               tool_schemas: {create_invoice: {effect: write}}
             end
             rules unknown_tool
             create_invoice {} => allow
             creat_invoice {} => deny unknown_tool
             creat_invoice {} => deny unknown_tool, warning unknown_tool 2
             other {} => deny unknown_tool   x2
             other {} => deny unknown_tool, critical unknown_tool 5",
        );
    }

    #[test]
    fn a_policy_that_names_no_tool_knows_all() {
        check("rules unknown_tool\n anything {} => allow");
    }

    #[test]
    fn a_tool_of_a_tier_is_known() {
        check(
            "policy
               authorization: {tiers: [{name: reads, pattern: 'get_*', action: allowlist}]}
               tool_schemas: {pay: {once: true}}
             end
             rules unknown_tool
             get_order {} => allow
             drop_table {} => deny unknown_tool",
        );
    }

    #[test]
    fn a_pattern_makes_no_tool_of_a_slip() {
        check(
            "policy
               authorization: {tiers: [{name: reads, pattern: 'get_*|list_ordrs', action: allowlist}]}
               tool_schemas: {get_order: {effect: read}, list_orders: {effect: read}}
             end
             rules unknown_tool
             get_order {} => allow
             get_ordr {} => deny unknown_tool
             get_orders {} => allow
             list_ordrs {} => allow
             get_weather {} => allow",
        );
    }
}
