//! requires: something else must have happened first.
//!
//! Fires when the policy requires an earlier success of another tool and there is none whose arguments or result match,
//! or when a condition over that result does not hold. While the other call is running it is a WAIT.
//!
//! Why: a model that skips a step, or remembers an id wrongly, would act on a thing that does not exist or that it
//! never read. The refusal names the missing step.
//!
//! Known problems: the last 64 answers of such tools in the call tree are kept, up to 64 KiB each; one that is longer,
//! no JSON, or not stored in full matches only by its arguments.

mod values;

use std::collections::BTreeMap;

use crate::domain::{
    call::{Call, CallStatus},
    finding::{Decision, Finding, Wording},
    json::Json,
    pattern::Pattern,
    reason::Reason,
    tree::{ChangedResource, RetainedSuccess},
};

use super::{
    RecordedCall, Rule, RuleContext, RuleLogic,
    condition::{Condition, ConditionError},
};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("requires");
/// Interval of rechecks while the earlier call runs, in milliseconds.
const RECHECK_MS: u64 = 1_000;

/// Source of a value in an earlier call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    /// One of its arguments.
    Argument(String),
    /// A JSON pointer into its result; `*` is any element.
    Result(String),
}

/// A prerequisite.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    /// Tools with an accepted success.
    pub tools: Pattern,
    /// Arguments of the call, and the sources of equal values in the earlier one.
    pub matching: Vec<(String, ValueSource)>,
    /// Condition over the result.
    pub condition: Option<Condition>,
    /// Message when unmet; `{values}` is replaced by the compared values.
    pub message: Option<String>,
    /// Text for the user when unmet.
    pub user_facing_hint: Option<String>,
}

/// Prerequisites by tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// By tool.
    pub by_tool: BTreeMap<String, Vec<Requirement>>,
}

impl Params {
    /// True when other tools' calls may depend on this one.
    #[must_use]
    pub fn builds_on(&self, tool: &str) -> bool {
        self.by_tool.values().flatten().any(|requirement| requirement.tools.matches(tool))
    }
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        self.by_tool.get(cx.tool())?.iter().find_map(|requirement| unmet(requirement, cx))
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        let requirements = self.by_tool.get(asked.tool).into_iter().flatten();
        let steps: Vec<&str> = requirements.map(|requirement| requirement.tools.as_str()).collect();
        if steps.is_empty() {
            return "requires nothing".to_owned();
        }
        format!("what it requires was there: {}", steps.join(", "))
    }
}

fn unmet(requirement: &Requirement, cx: &RuleContext<'_>) -> Option<Finding> {
    let arguments = &cx.proposal.request.arguments;
    let of_tools = || cx.tree.kept.iter().rev().filter(|kept| requirement.tools.matches(kept.tool.as_str()));
    let matches =
        |kept: &&RetainedSuccess| requirement.matching.iter().all(|(field, at)| has(kept, at, arguments.get(field)));
    let Some(kept) = of_tools().find(matches) else {
        return Some(missing(requirement, cx, of_tools().next().is_some()));
    };
    let condition = requirement.condition.as_ref()?;
    let tool = &kept.tool;
    if let Some(changed) = changed_since(cx, kept) {
        let (problem, next) = (
            format!("{} has been changed by {} since {tool} read it.", changed.resource.as_str(), changed.tool),
            format!("Call {tool} again, then decide."),
        );
        return Some(requirement_finding(requirement, cx, &problem, changed.resource.as_str(), &next));
    }
    let last = |tool: &str| kept.result.as_deref().filter(|_| kept.tool.as_str() == tool);
    let (problem, values) = match condition.evaluate(&cx.condition_variables(&last)) {
        Ok(true) => return None,
        Ok(false) => {
            let values = values::list_compared_values(condition.text(), arguments, &last).join(", ");
            (format!("{values}, and {} does not hold.", condition.text()), values)
        }
        Err(ConditionError::NotCalled(tool)) => {
            let problem = format!("{tool} has not answered.");
            return Some(requirement_finding(requirement, cx, &problem, &tool, &format!("Call {tool} first.")));
        }
        Err(broken @ ConditionError::Broken(_)) => return Some(cx.condition_finding(RULE.id, &broken)),
    };
    let next = "Change the arguments so that it holds, or tell the user what stands against it.";
    Some(requirement_finding(requirement, cx, &problem, &values, next))
}

/// The write of the same resource that was permitted after `kept` was read.
fn changed_since<'a>(cx: &RuleContext<'a>, kept: &RetainedSuccess) -> Option<&'a ChangedResource> {
    let resource = cx.proposal.effect.resource.as_ref()?;
    let later = |changed: &&ChangedResource| changed.seq > kept.seq && changed.fingerprint != cx.fingerprint();
    cx.tree.changes.iter().rev().filter(later).find(|changed| changed.resource.overlaps(resource))
}

/// The policy's message, if there is one.
fn requirement_finding(
    requirement: &Requirement,
    cx: &RuleContext<'_>,
    problem: &str,
    values: &str,
    next: &str,
) -> Finding {
    let next = requirement.user_facing_hint.as_deref().unwrap_or(next);
    let finding = |message: Wording| Finding::new(RULE.id, Decision::Deny, Reason::MissingPrerequisite, message);
    match &requirement.message {
        Some(owners) => {
            finding(format!("{} was not run: {}", cx.tool(), owners.replace("{values}", values)).into()).next(next)
        }
        None => finding(Wording::new(format!("{} was not run: {problem}", cx.tool()), next)),
    }
}

fn missing(requirement: &Requirement, cx: &RuleContext<'_>, was_called: bool) -> Finding {
    let is_running = |call: &&Call| matches!(call.standing(cx.now), CallStatus::InFlight);
    let running = cx.tree.calls().filter(is_running).find(|call| requirement.tools.matches(call.tool.as_str()));
    let waits = cx.who_waits();
    let tool = cx.tool();
    if let Some(running) = running {
        let situation = format!("{tool} was not run yet: it builds on {}, which is still running.", running.tool);
        let message = Wording::new(situation, waits);
        return Finding::new(RULE.id, Decision::Wait, Reason::PrerequisiteRunning, message).retry_after(RECHECK_MS);
    }
    let step = requirement.tools.as_str().replace('|', " or ");
    let arguments = &cx.proposal.request.arguments;
    let (mut named, mut looked_for) = (Vec::new(), Vec::new());
    for (field, source) in &requirement.matching {
        let Some(value) = arguments.get(field) else { continue };
        match source {
            ValueSource::Argument(_) => named.push(format!("{field} {}", render_value(value))),
            ValueSource::Result(_) => looked_for.push(format!("{field} {}", render_value(value))),
        }
    }
    let values = [named.clone(), looked_for.clone()].concat().join(", ");
    // Only a searched value can be missing.
    let problem = match (was_called, looked_for.is_empty()) {
        (true, false) => format!("{} was not found in what {step} has returned.", looked_for.join(" with ")),
        _ if named.is_empty() => format!("there was no earlier {step} in this session."),
        _ => format!("there was no earlier {step} for {} in this session.", named.join(" with ")),
    };
    requirement_finding(requirement, cx, &problem, &values, &format!("Call {step} first."))
}

fn render_value(value: &Json) -> String {
    let text = match value {
        Json::String(text) => format!("'{text}'"),
        other => other.canonical(),
    };
    if text.chars().count() > 80 { format!("{}…", text.chars().take(80).collect::<String>()) } else { text }
}

fn has(kept: &RetainedSuccess, source: &ValueSource, value: Option<&Json>) -> bool {
    let Some(value) = value else { return false };
    match source {
        ValueSource::Argument(name) => {
            kept.arguments.as_deref().and_then(|arguments| arguments.get(name)) == Some(value)
        }
        ValueSource::Result(pointer) => kept.result.as_deref().is_some_and(|result| {
            let parts: Vec<&str> = pointer.split('/').skip(1).collect();
            holds(result, &parts, value)
        }),
    }
}

fn holds(at: &Json, path: &[&str], value: &Json) -> bool {
    let Some((first, rest)) = path.split_first() else { return at == value };
    match (at, *first) {
        (Json::Array(items), "*") => items.iter().any(|item| holds(item, rest, value)),
        (Json::Array(items), index) => {
            index.parse::<usize>().ok().and_then(|i| items.get(i)).is_some_and(|item| holds(item, rest, value))
        }
        (object, name) => object.get(name).is_some_and(|field| holds(field, rest, value)),
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    const MAIL: &str = "policy
        tool_schemas:
          compose_email: {effect: read}
          send_email:
            once: true
            requires: [{tool: compose_email, match: {draft_id: /draft/id}}]
          get_order: {effect: read, side_effect_resource: 'order/{order_id}'}
          refund:
            once: true
            requires:
              - tool: get_order
                match: {order_id: args.order_id}
                condition: args.amount <= last('get_order').refundable
      end
      rules requires
      ";

    #[test]
    fn an_id_that_nothing_returned_is_refused_with_the_step_that_is_missing() {
        check(&format!(
            "{MAIL}
             send_email {{\"draft_id\":\"d1\"}} => deny missing_prerequisite
             compose_email {{}} -> ok {{\"draft\":{{\"id\":\"d1\"}}}}
             send_email {{\"draft_id\":\"d2\"}} => deny missing_prerequisite
             send_email {{\"draft_id\":\"d1\"}} => allow"
        ));
    }

    #[test]
    fn while_the_step_runs_the_call_waits() {
        check(&format!(
            "{MAIL}
             compose_email {{}} as c1 => allow
             send_email {{\"draft_id\":\"d1\"}} => wait prerequisite_running after 1s
             record c1 ok {{\"draft\":{{\"id\":\"d1\"}}}}
             send_email {{\"draft_id\":\"d1\"}} => allow"
        ));
    }

    #[test]
    fn a_result_from_before_the_last_write_must_be_read_again() {
        check(
            "policy
               tool_schemas:
                 get_order: {effect: read, side_effect_resource: 'order/{order_id}'}
                 refund:
                   effect: write
                   side_effect_resource: 'order/{order_id}'
                   requires:
                     - tool: get_order
                       match: {order_id: args.order_id}
                       condition: args.amount <= last('get_order').refundable
             end
             rules requires
             get_order {\"order_id\":1} -> ok {\"refundable\":50}
             refund {\"order_id\":1,\"amount\":40} -> ok done
             refund {\"order_id\":1,\"amount\":30} => deny missing_prerequisite
             get_order {\"order_id\":1} -> ok {\"refundable\":10}
             refund {\"order_id\":1,\"amount\":30} => deny missing_prerequisite
             refund {\"order_id\":1,\"amount\":10} => allow",
        );
    }

    #[test]
    fn a_condition_over_the_matching_result_decides() {
        check(&format!(
            "{MAIL}
             get_order {{\"order_id\":1}} -> ok {{\"refundable\":50}}
             get_order {{\"order_id\":2}} -> ok {{\"refundable\":5}}
             refund {{\"order_id\":1,\"amount\":50}} => allow
             refund {{\"order_id\":2,\"amount\":50}} => deny missing_prerequisite
             refund {{\"order_id\":3,\"amount\":1}} => deny missing_prerequisite"
        ));
    }
}
