//! schema: the arguments are not what the tool takes.
//!
//! Fires when the arguments violate the tool's JSON Schema, contain an unknown field (`unknown_fields: refuse`), or
//! violate one of the tool's conditions. All violations are reported at once: the field, the problem, and the fix.
//!
//! Why: a provider's error for bad arguments is made for programmers and costs a round trip; a model corrects itself
//! from a sentence that names the field. With `on_violation: ask_user` a condition is for the user only; if models
//! hardly ever corrected a field, the user is asked as well.
//!
//! Known problems: a condition that cannot be evaluated (it reads a missing field) is a fault of the policy, and a
//! person decides (`policy_fault`); write `!has(args.x) || …` for an optional field. `callgate policy check` lists such
//! conditions.

use std::collections::BTreeMap;

use crate::domain::{
    finding::{Decision, Finding, Wording},
    reason::Reason,
    violation::{CONDITION, OnViolation, Violation, any_item},
};

use super::{
    RecordedCall, Rule, RuleContext, RuleLogic,
    condition::{Condition, ConditionError},
};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("schema");

/// A condition on arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgumentCondition {
    /// Condition.
    pub condition: Condition,
    /// The field to name in the violation.
    pub field: String,
    /// Message of the violation; default: the condition.
    pub message: Option<String>,
    /// Party that can fix it.
    pub on_violation: OnViolation,
    /// Text for the user.
    pub user_facing_hint: Option<String>,
}

/// Conditions by tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// By tool.
    pub by_tool: BTreeMap<String, Vec<ArgumentCondition>>,
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        check(self, cx)
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        match (asked.has_schema, self.by_tool.contains_key(asked.tool)) {
            (false, false) => "no schema is declared for this tool",
            (true, false) => "the arguments are valid",
            (false, true) => "no schema is declared for this tool; its conditions hold",
            (true, true) => "the arguments are valid, and the tool's conditions hold",
        }
        .to_owned()
    }
}

fn check(params: &Params, cx: &RuleContext<'_>) -> Option<Finding> {
    let mut violations = cx.proposal.violations.clone();
    let checks = params.by_tool.get(cx.tool()).map_or(&[][..], Vec::as_slice);
    // Arguments of invalid form cannot be checked by conditions.
    if violations.is_empty() {
        let judged = checks.iter().map(|check| broken(check, cx)).collect::<Result<Vec<_>, _>>();
        match judged {
            Ok(broken) => violations.extend(broken.into_iter().flatten()),
            Err(problem) => return Some(cx.condition_finding(RULE.id, &problem)),
        }
    }
    if violations.is_empty() {
        return None;
    }
    for violation in violations.iter_mut().filter(|violation| violation.on_violation == OnViolation::SelfCorrect) {
        let (tool, field) = (&cx.proposal.request.tool, any_item(&violation.field));
        if cx.self_corrections.is_for_the_user(tool, &field, &violation.keyword) {
            violation.on_violation = OnViolation::AskUser;
            violation.is_hopeless = true;
            violation.user_facing_hint = Some(format!(
                "Ask the user what {} should be before you call it again: corrections without them have not helped.",
                violation.field
            ));
        }
    }
    let what: Vec<&str> = violations.iter().map(|violation| violation.message.trim_end_matches('.')).collect();
    let asks = violations.iter().find(|violation| violation.on_violation == OnViolation::AskUser);
    let next = match asks.map(|violation| violation.user_facing_hint.as_deref()) {
        None => "Correct the arguments and call it again.",
        Some(None) => "Ask the user for what is missing before you call it again.",
        Some(Some(hint)) => hint,
    };
    let message = Wording::new(format!("{} was not run: {}.", cx.tool(), what.join("; ")), next);
    Some(Finding::new(RULE.id, Decision::Deny, Reason::ValidationError, message).violating(violations))
}

fn broken(check: &ArgumentCondition, cx: &RuleContext<'_>) -> Result<Option<Violation>, ConditionError> {
    if check.condition.evaluate(&cx.condition_variables(&|_| None))? {
        return Ok(None);
    }
    let problem = || format!("{} does not hold", check.condition.text());
    Ok(Some(Violation {
        field: check.field.clone(),
        message: check.message.clone().unwrap_or_else(problem),
        keyword: CONDITION.to_owned(),
        on_violation: check.on_violation,
        user_facing_hint: check.user_facing_hint.clone(),
        is_hopeless: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::verdict::Verdict,
        rules::testing::{check, play},
    };

    const HOTEL: &str = "policy
        tool_schemas:
          book:
            effect: write
            schema:
              type: object
              properties: {check_in: {type: string, format: date}, check_out: {type: string, format: date}}
              required: [check_in, check_out]
            conditions:
              - {check: date(args.check_out) > date(args.check_in), field: check_out}
      end
      rules schema
      ";

    #[test]
    fn violation_of_the_schema_or_a_condition_is_refused() {
        check(&format!(
            "{HOTEL}
             book {{}} => deny validation_error
             book {{\"check_in\":\"2026-05-01\",\"check_out\":\"soon\"}} => deny validation_error
             book {{\"check_in\":\"2026-05-02\",\"check_out\":\"2026-05-01\"}} => deny validation_error"
        ));
    }

    #[test]
    fn a_condition_that_cannot_be_judged_is_for_people_and_not_for_the_model() {
        let story = "policy
            tool_schemas:
              pay: {once: true, conditions: [{check: 'args.net + args.tax <= 100'}]}
              send: {once: true, conditions: [{when: 'args.size > 10', then: deny}]}
              ship: {once: true, requires: [{tool: look, condition: \"last('look').free > 1\"}]}
              look: {effect: read}
          end
          rules schema tier requires
          pay {\"net\":1} => ask policy_fault
          send {\"size\":\"large\"} => ask policy_fault
          look {} -> ok {\"free\":\"many\"}
          ship {} => ask policy_fault
          pay {\"net\":1,\"tax\":2} => allow";
        let said = play(story, None).unwrap_or_else(|problem| panic!("{problem}"));
        let asked: Vec<&Finding> = said.iter().filter_map(Verdict::winner).collect();
        assert_eq!(asked.len(), 3);
        for finding in asked {
            assert!(!finding.message.contains("args") && !finding.message.contains("has("), "{}", finding.message);
            let people = finding.for_people.as_ref().expect("a text for people");
            assert!(people.contains("could not be judged: "), "{people}");
        }
    }

    #[test]
    fn corrected_arguments_pass() {
        check(&format!("{HOTEL} book {{\"check_in\":\"2026-05-01\",\"check_out\":\"2026-05-02\"}} => allow"));
    }
}
