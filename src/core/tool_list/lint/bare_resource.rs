//! bare_resource: a write whose declared resource is a type, not one thing of that type.
//!
//! Reports a write with a `side_effect_resource` without a hole (`invoice`) whose arguments could name the thing, or
//! whose name speaks of that type. A creation (`create`, `book`) has no identity yet and is left alone.
//!
//! Why: with `invoice` every two writes are about the same thing: a second invoice is asked about as if it changed the
//! first, and each read of any invoice counts as outdated.
//!
//! Known problems: a thing of which there is only one (`settings`) needs no hole; name it so that its tool does not.

use super::{LintReport, ListFacts, ToolFacts};
use crate::{domain::effect::EffectKind, tool_list::IdentityArgument};

const REASON: &str = "a type is no identity: changes of different things then look like changes of one";

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    facts.tools.iter().filter_map(of_tool).collect()
}

fn of_tool(tool: &ToolFacts<'_>) -> Option<LintReport> {
    const MAKES: &[&str] =
        &["create", "add", "insert", "book", "place", "make", "register", "send", "post", "schedule"];
    let declared = tool.declared.filter(|declared| declared.effect == EffectKind::Write)?;
    let resource = declared.resource.as_ref()?;
    if resource.fields().next().is_some() || MAKES.contains(&tool.verb()) {
        return None;
    }
    let kind = resource.to_string();
    let kind = kind.trim_matches('/');
    let required = tool.properties().filter(|(node, _)| node.top && node.required);
    let identities: Vec<IdentityArgument> = required.filter_map(|(_, field)| IdentityArgument::of(field)).collect();
    let own = identities.iter().find(|identity| identity.noun == kind).or(identities.first());
    let better = match own {
        Some(identity) => format!("`side_effect_resource: \"{kind}/{{{}}}\"`", identity.field),
        None if tool.nouns.iter().any(|noun| noun == kind) => {
            format!("require `{kind}_id` and declare `side_effect_resource: \"{kind}/{{{kind}_id}}\"`")
        }
        None => return None,
    };
    let message = format!("writes `{kind}`, which is a type and not one {kind}");
    Some(tool.report("", message, REASON, better))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn a_type_without_identity_is_reported() {
        reports(
            "bare_resource",
            "
            - name: pay
              policy: {effect: write, resource: invoice}
              input_schema: {properties: {user_id: {}, invoice_id: {}}, required: [user_id, invoice_id]}
            - {name: update_invoice, policy: {effect: write, resource: invoice}}
            ",
            "warning pay: writes `invoice`, which is a type and not one invoice
             better: `side_effect_resource: \"invoice/{invoice_id}\"`
             warning update_invoice: writes `invoice`, which is a type and not one invoice
             better: require `invoice_id` and declare `side_effect_resource: \"invoice/{invoice_id}\"`",
        );
    }

    #[test]
    fn an_identity_a_new_thing_and_a_single_one_are_left_alone() {
        silent(
            "bare_resource",
            "
            - {name: update_invoice, policy: {effect: write, resource: 'invoice/{id}'}}
            - {name: create_invoice, policy: {effect: write, resource: invoice}}
            - {name: list_invoices, policy: {effect: read, resource: invoice}}
            - {name: transfer_to_human_agents, policy: {effect: write, resource: conversation}}
            - {name: update_invoice_footer}
            ",
        );
    }
}
