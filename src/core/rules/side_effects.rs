//! side_effects: another call has changed this thing already.
//!
//! Fires for a declared write of a named resource (`order/{order_id}`, with its placeholders filled) when another write
//! of it was permitted in this call tree and did not fail cleanly: by another tool, or by the same tool with other
//! arguments. It needs approval; `second_change: deny` refuses, `allow` permits it, for the policy or for one tool.
//!
//! Why: `create_invoice` and then `charge_card` for one order is a duplicate that no comparison of names and arguments
//! detects. Exact repetitions belong to `same_call`.
//!
//! Known problems: it depends on declarations; two tools with different names for one resource do not meet. Resources
//! that change often by design (a file under edit) need `second_change: allow`.

use std::collections::BTreeMap;

use crate::domain::{
    effect::EffectKind,
    finding::{Decision, Finding, Wording},
    reason::Reason,
    tree::ChangedResource,
};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    PolicySection, RecordedCall, Rule, RuleContext, RuleLogic, SectionProblem, context::ASKED_FOR,
    explained_call::NOTHING, take_in,
};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("side_effects");

/// Decision on a second change of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecondChange {
    /// The call is permitted.
    Allow,
    /// A change by another tool needs an approval. One by the same tool with other arguments is permitted with a hint.
    #[default]
    Ask,
    /// The call is refused.
    Deny,
}

/// Parameters of the rule.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "SideEffects")]
pub struct Params {
    /// Decision on a second change of one resource: ask by default.
    pub second_change: SecondChange,
    /// The same for tools that set it.
    #[serde(skip)]
    pub by_tool: BTreeMap<String, SecondChange>,
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        check(self, cx)
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        let Some(effect) = asked.cx.map(|cx| &cx.proposal.effect) else { return NOTHING.to_owned() };
        let named = effect.resource.as_ref().filter(|it| it.is_named() && effect.kind == EffectKind::Write);
        let Some(resource) = named else { return "no declared write of a named thing".to_owned() };
        if self.of(asked.tool) == SecondChange::Allow {
            return "a second change is allowed".to_owned();
        }
        let approved = asked.describe_approver().map(|approved| format!(", or {approved}")).unwrap_or_default();
        format!("no other call had changed {}{approved}", resource.as_str())
    }

    fn policy_sections(&self) -> Vec<PolicySection> {
        vec![PolicySection::section::<Self>(RULE.section)]
    }

    fn read(&mut self, _at: &str, part: Value) -> Vec<SectionProblem> {
        take_in(self, part)
    }
}

impl Params {
    fn of(&self, tool: &str) -> SecondChange {
        self.by_tool.get(tool).copied().unwrap_or(self.second_change)
    }
}

fn check(params: &Params, cx: &RuleContext<'_>) -> Option<Finding> {
    let effect = &cx.proposal.effect;
    let resource = effect.resource.as_ref().filter(|resource| effect.kind == EffectKind::Write && resource.is_named());
    let resource = resource.filter(|_| cx.proposal.declared)?;
    let set = params.of(cx.tool());
    let is_other = |changed: &&ChangedResource| {
        changed.fingerprint != cx.fingerprint()
            && changed.resource.overlaps(resource)
            && params.of(changed.tool.as_str()) != SecondChange::Allow
    };
    let changes = || cx.tree.changes.iter().rev().filter(is_other);
    let by_another = changes().find(|changed| changed.tool.as_str() != cx.tool());
    let (tool, what) = (cx.tool(), resource.as_str());
    let (decision, earlier) = match set {
        SecondChange::Allow => return None,
        SecondChange::Deny => (Decision::Deny, changes().next()?),
        SecondChange::Ask => match by_another {
            Some(earlier) => (Decision::Ask, earlier),
            None => (Decision::Allow, changes().next()?),
        },
    };
    let how = if earlier.tool.as_str() == tool { " with other arguments" } else { "" };
    let changes = if decision == Decision::Allow { "changes" } else { "would change" };
    let situation = format!("{tool} {changes} {what}, which {}{how} has changed already.", earlier.tool);
    let message = match decision {
        Decision::Allow => format!("{situation} Both changes hold.").into(),
        Decision::Ask => Wording::new(format!("{situation} A person must approve a second change."), ASKED_FOR),
        _ => Wording::new(
            format!("{situation} A second change is not allowed."),
            "Look at what was done, and tell the user.",
        ),
    };
    Some(Finding::new(RULE.id, decision, Reason::ResourceAlreadyChanged, message))
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn the_paraphrase_of_a_write_is_asked_about() {
        check(
            "rules side_effects
             tool create_invoice write order/{order_id}
             tool charge_card once order/{order_id}
             create_invoice {\"order_id\":7} -> ok done => allow
             charge_card {\"order_id\":7,\"cents\":5} => ask resource_already_changed
             charge_card {\"order_id\":8,\"cents\":5} => allow",
        );
    }

    #[test]
    fn clean_failure_changed_nothing_and_the_same_call_is_no_second_effect() {
        check(
            "rules side_effects
             tool create_invoice write order/{order_id}
             tool charge_card once order/{order_id}
             create_invoice {\"order_id\":7} -> error invalid_argument => allow
             charge_card {\"order_id\":7} -> ok done => allow
             charge_card {\"order_id\":7} => allow
             create_invoice {} => allow",
        );
    }

    #[test]
    fn a_file_under_edit_is_changed_many_times() {
        check(
            "policy
               tool_schemas:
                 edit: {effect: write, side_effect_resource: 'workspace/{path}', second_change: allow}
             end
             rules side_effects
             edit {\"path\":\"a.rs\",\"n\":new} -> ok done => allow   x5",
        );
    }
}
