//! Input of a rule's explanation: a stored call on which it had no finding.

use super::RuleContext;
use crate::domain::{effect::EffectKind, tool::ToolSpec};

/// Default explanation.
pub(super) const NOTHING: &str = "nothing to say";

/// A stored call.
#[derive(Debug, Clone, Copy)]
pub struct RecordedCall<'a> {
    /// Its tool.
    pub tool: &'a str,
    /// Facts about the tool.
    pub spec: &'a ToolSpec,
    /// True for a declared tool.
    pub declared: bool,
    /// True for a tool with an argument schema.
    pub has_schema: bool,
    /// Approver, whose approval settles the rules that ask.
    pub approved_by: Option<&'a str>,
    /// Input of the rules, rebuilt from stored calls; none when that is impossible.
    pub cx: Option<RuleContext<'a>>,
}

impl RecordedCall<'_> {
    /// Effect kind of the call, if known.
    #[must_use]
    pub fn effect_kind(&self) -> Option<EffectKind> {
        self.cx.map(|cx| cx.proposal.effect.kind)
    }

    /// The approver as text.
    #[must_use]
    pub fn describe_approver(&self) -> Option<String> {
        self.approved_by.map(|by| format!("{by} approved it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ToolName;

    const POLICY: &str = "policy_engine:
      authorization:
        tiers:
          - {name: reads, pattern: 'get_*', action: allowlist}
          - {name: drops, pattern: 'delete_*', action: hitl}
      phases: [{name: LOOK, tools: 'get_*', next: [ACT]}, {name: ACT, tools: '*'}]
      tool_schemas:
        get_order: {effect: read, schema: {type: object}}
        delete_order: {effect: write, requires: [{tool: get_order}]}
        move_order: {effect: write, risk_level: MEDIUM}
        final_answer: {terminal: true}
      loops: {repeat: {warning: 4, critical: 5, break: 6}}
    ";

    fn describe_request(tool: &str, approved_by: Option<&str>, rule: &str) -> String {
        let policy = crate::policy::compile(POLICY).expect("a good policy");
        let name = ToolName::parse("tool", tool).expect("a good name");
        let declared = policy.tools().any(|(known, _)| known == tool);
        let (spec, has_schema) = (policy.tool(&name), policy.has_schema(&name));
        policy.rules.find(rule).expect("a rule").silent(&RecordedCall {
            tool,
            spec,
            declared,
            has_schema,
            approved_by,
            cx: None,
        })
    }

    #[test]
    fn a_silent_rule_says_what_its_policy_has_for_the_tool() {
        for (tool, rule, expected) in [
            ("get_order", "schema", "the arguments are valid"),
            ("move_order", "schema", "no schema is declared for this tool"),
            ("get_order", "phase", "get_order is for LOOK and ACT"),
            ("delete_order", "requires", "what it requires was there: get_order"),
            ("move_order", "requires", "requires nothing"),
            ("get_list", "unknown_tool", "a tier or phase names get_list"),
            ("get_order", "tier", "tier reads: allowlist"),
            ("move_order", "tier", "no tier; risk level MEDIUM: a grant, and not used up"),
            ("get_order", "repeat", "nothing to say; it warns from 4 on"),
            ("final_answer", "tier", "not asked: final_answer is a way out, which is never blocked"),
        ] {
            assert_eq!(describe_request(tool, None, rule), expected, "{rule}");
        }
    }

    #[test]
    fn an_approval_is_why_a_rule_that_asks_is_silent() {
        assert_eq!(describe_request("delete_order", Some("eve"), "tier"), "tier drops: hitl; eve approved it");
        assert_eq!(
            describe_request("move_order", Some("eve"), "tier"),
            describe_request("move_order", None, "tier") + "; eve approved it"
        );
    }
}
