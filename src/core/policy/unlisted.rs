//! Unlisted tools: the decision on tools that a policy does not name.

use serde::Serialize;

use crate::{
    policy::Policy,
    rules::{
        Mode,
        tier::{self, Action},
        unknown_tool::{self, UnknownToolMode},
    },
};

/// Decision on a tool that is neither declared, nor in a tier, nor in a phase, with its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnlistedToolDecision {
    /// `allow`, `grant`, `ask` or `deny`; stable.
    pub becomes: &'static str,
    /// The responsible part of the policy.
    pub why: String,
}

impl UnlistedToolDecision {
    /// The decision of this policy.
    #[must_use]
    pub fn by(policy: &Policy) -> Self {
        let is_enforced = |id: &str| policy.rules.iter().any(|slot| slot.rule.id == id && slot.mode == Mode::Enforce);
        let is_enforced = |id: &str| policy.mode == Mode::Enforce && is_enforced(id);
        let unknown = policy.rules.get::<unknown_tool::Params>().unknown();
        let by_name = match unknown {
            _ if !is_enforced(unknown_tool::RULE.id) => None,
            UnknownToolMode::Deny => return Self { becomes: "deny", why: "unknown_tools: deny".to_owned() },
            UnknownToolMode::Ask => Some(Self { becomes: "ask", why: "unknown_tools: ask".to_owned() }),
            UnknownToolMode::Allow => None,
        };
        let tiers = &policy.rules.get::<tier::Params>().tiers;
        // Only a catch-all pattern matches the empty name.
        let of_all = tiers.iter().find(|tier| tier.tools.matches(""));
        let by_tier = match of_all {
            _ if !is_enforced(tier::RULE.id) => {
                Self { becomes: "allow", why: "no rule that is enforced asks".to_owned() }
            }
            Some(tier) => {
                let becomes = match tier.action {
                    _ if tier.shadow => "allow",
                    Action::Allow => "allow",
                    Action::Grant => "grant",
                    Action::Ask => "ask",
                    Action::Deny => "deny",
                };
                Self { becomes, why: format!("tier {} takes whatever comes", tier.name) }
            }
            None if tiers.is_empty() => {
                Self { becomes: "allow", why: "no tiers, and unknown_tools is not deny".to_owned() }
            }
            None => {
                let why = "there are tiers, and none takes them; unknown_tools: deny refuses them, and a last tier \
                           with pattern \"*\" decides otherwise";
                Self { becomes: "ask", why: why.to_owned() }
            }
        };
        match by_name {
            Some(asks) if by_tier.becomes != "deny" => asks,
            _ => by_tier,
        }
    }

    /// Description for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let becomes = match self.becomes {
            "allow" => "are let through",
            "grant" => "are let through as often as the tier grants",
            "ask" => "wait for a person (ASK)",
            _ => "are refused (DENY)",
        };
        format!("tools that it does not list {becomes}: {}", self.why)
    }
}

/// Declared tools that need approval because there are tiers, and they have neither a tier nor a risk.
#[must_use]
pub fn without_tier(policy: &Policy) -> Vec<&str> {
    let params = policy.rules.get::<tier::Params>();
    if params.tiers.is_empty() {
        return Vec::new();
    }
    let tiers = |name: &str| params.tiers.iter().any(|tier| tier.tools.matches(name));
    let waits = policy.tools().filter(|(name, spec)| spec.risk.is_none() && !spec.terminal && !tiers(name));
    waits.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;

    #[test]
    fn unlisted_tools_decision_equals_that_of_the_rules() {
        let one = "authorization: {tiers: [{name: reads, pattern: 'get_*', action: allowlist}]}";
        let all = |action: &str| format!("authorization: {{tiers: [{{name: rest, pattern: '*', action: {action}}}]}}");
        for (policy, becomes) in [
            ("mode: enforce".to_owned(), "allow"),
            (one.to_owned(), "ask"),
            (format!("{one}\n  unknown_tools: deny"), "deny"),
            (format!("{one}\n  mode: shadow"), "allow"),
            (format!("{one}\n  rules: {{tier: {{mode: shadow}}}}"), "allow"),
            ("tool_schemas: {get_order: {effect: read}}".to_owned(), "deny"),
            (all("allowlist"), "allow"),
            (all("hitl"), "ask"),
            (all("per_conversation_grant"), "grant"),
            (format!("{}\n  unknown_tools: ask", all("deny")), "deny"),
            (format!("{}\n  unknown_tools: ask", all("allowlist")), "ask"),
        ] {
            let compiled = compile(&format!("policy_engine:\n  {policy}\n")).expect(&policy);
            let unlisted = UnlistedToolDecision::by(&compiled);
            assert_eq!(unlisted.becomes, becomes, "{policy}: {}", unlisted.why);
        }
    }

    #[test]
    fn declared_tools_that_no_tier_takes_are_named() {
        let text = "policy_engine:
  authorization: {tiers: [{name: reads, pattern: 'get_*', action: allowlist}]}
  tool_schemas:
    get_order: {effect: read}
    pay: {once: true}
    look: {risk_level: LOW}
    end: {terminal: true}
";
        assert_eq!(without_tier(&compile(text).expect("good")), ["pay"]);
    }
}
