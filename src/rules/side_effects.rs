//! side_effects: another call has changed this thing already.
//!
//! Fires for a declared write of a named thing (`order/{order_id}`, with its holes filled) when another tool, or the
//! same tool with other arguments, has been permitted to write the same thing in this call tree and did not fail
//! cleanly. A person is asked; `second_change: deny` refuses, `allow` lets it pass, for the policy or for one tool.
//!
//! Why: `create_invoice` and then `charge_card` for one order is how a duplicate slips past every comparison of names
//! and arguments. The same call again is the business of `same_call`.
//!
//! Known problems: it knows what was declared; two tools that name one thing differently do not meet. Things that are
//! changed many times by design (a file under edit) need `second_change: allow`.

use std::collections::BTreeMap;

use crate::domain::{
    effect::EffectKind,
    finding::{Decision, Finding},
    reason::Reason,
    tree::Changed,
};

use super::Context;

/// The rule's name.
pub const ID: &str = "side_effects";

/// What becomes of a second change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SecondChange {
    /// It passes.
    Allow,
    /// A person is asked.
    #[default]
    Ask,
    /// It is refused.
    Deny,
}

/// What becomes of second changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// Of most tools.
    pub second_change: SecondChange,
    /// Of these.
    pub by_tool: BTreeMap<String, SecondChange>,
}

/// See the module.
#[must_use]
pub fn check(params: &Params, cx: &Context<'_>) -> Option<Finding> {
    let effect = &cx.proposal.effect;
    let resource =
        effect.resource.as_ref().filter(|resource| effect.kind == EffectKind::Write && resource.is_named())?;
    let of = |tool: &str| params.by_tool.get(tool).copied().unwrap_or(params.second_change);
    let decision = match of(cx.tool()) {
        SecondChange::Allow => return None,
        SecondChange::Ask => Decision::Ask,
        SecondChange::Deny => Decision::Deny,
    };
    let is_other = |changed: &&Changed| {
        changed.fingerprint != cx.fingerprint()
            && changed.resource.overlaps(resource)
            && of(changed.tool.as_str()) != SecondChange::Allow
    };
    let earlier = cx.tree.changes.iter().rev().find(is_other)?;
    let how = if earlier.tool.as_str() == cx.tool() { " with other arguments" } else { "" };
    let so = match decision {
        Decision::Ask => "A person must approve a second change.",
        _ => "A second change is not allowed: look at what was done, and tell the user.",
    };
    let (tool, what) = (cx.tool(), resource.as_str());
    let message = format!("{tool} would change {what}, which {}{how} has changed already. {so}", earlier.tool);
    Some(Finding::new(ID, decision, Reason::ResourceAlreadyChanged, message))
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
    fn what_failed_cleanly_changed_nothing_and_the_same_call_is_not_second() {
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
