//! halted: somebody pulled the kill switch.
//!
//! Fires when the session, an ancestor, the agent or the whole tenant is halted (STOP until Resume), or the tool is
//! (DENY: other tools may continue). Every replica enforces a halt within two seconds.
//!
//! Why: when agents do harm, one switch must stop all of them, whatever their own code does.
//!
//! A call that was permitted before and has no outcome yet is stopped when it is sent again under its call_id; its
//! lease stays, and its outcome is accepted.
//!
//! A halt is an operator's order: it holds under a policy, and for a tool, in shadow mode.
//!
//! Known problems: a call that was permitted before the halt and already runs is not cancelled.

use crate::domain::{
    finding::{Decision, Finding, Wording},
    halt::{Halt, HaltTarget},
    reason::Reason,
};

use super::{RecordedCall, Rule, RuleContext, RuleLogic};

/// The rule. It has no parameters; its mode and text are under `rules`.
pub const RULE: Rule = Rule::of::<Params>("halted").section("rules");

/// No parameters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Params;

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        check(cx)
    }

    fn silent(&self, _asked: &RecordedCall<'_>) -> String {
        "nothing that it belongs to was halted".to_owned()
    }
}

fn check(cx: &RuleContext<'_>) -> Option<Finding> {
    let halt = cx.halts.iter().find(|halt| concerns(&halt.what, cx))?;
    let why = reason(halt);
    let finding = match &halt.what {
        HaltTarget::Tool(tool) => {
            let situation = format!("{tool} was halted by an operator{why}");
            let message = Wording::new(situation, "Use another tool, or tell the user.");
            Finding::new(RULE.id, Decision::Deny, Reason::SessionHalted, message)
        }
        what => {
            let whom = match what {
                HaltTarget::Agent(_) => "This agent",
                HaltTarget::Tenant => "Every agent",
                _ => "This session",
            };
            let message = Wording::new(
                format!("{whom} was halted by an operator{why}"),
                "Do not call tools any more: tell the user what was done and what is missing.",
            );
            Finding::new(RULE.id, Decision::Stop, Reason::SessionHalted, message)
        }
    };
    Some(finding)
}

/// True when a halt stops this call.
fn concerns(what: &HaltTarget, cx: &RuleContext<'_>) -> bool {
    let request = &cx.proposal.request;
    match what {
        HaltTarget::Tenant => true,
        HaltTarget::Agent(agent) => request.agent.as_ref() == Some(agent),
        HaltTarget::Tool(tool) => request.tool == *tool,
        HaltTarget::Session(id) => cx.ancestry().any(|session| session == id),
    }
}

fn reason(halt: &Halt) -> String {
    let reason = halt.reason.trim().trim_end_matches('.');
    if reason.is_empty() { ".".to_owned() } else { format!(": {reason}.") }
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn a_halt_stops_a_session_and_its_sub_agents_and_nobody_else() {
        check(
            "rules halted
             look {} -> ok a
             session child parent s
             look {} -> ok a
             halt session s
             look {} => stop session_halted
             session other
             look {} => allow
             resume session s
             session child
             look {} => allow",
        );
    }

    #[test]
    fn a_permit_without_an_outcome_is_stopped_while_the_halt_lasts() {
        check(
            "rules halted
             pay {} as c1 => allow
             halt session s
             pay {} as c1 => stop session_halted
             resume session s
             pay {} as c1 => allow, replayed
             halt tool pay
             pay {} as c1 => deny session_halted
             record c1 ok done
             pay {} as c1 => deny session_halted",
        );
    }

    #[test]
    fn halt_holds_under_a_policy_and_a_tool_in_shadow_mode() {
        check(
            "policy
               mode: shadow
               tool_schemas: {pay: {mode: shadow}, look: {effect: read}}
             end
             halt session s
             pay {} => stop session_halted
             resume session s
             halt tool pay
             pay {} => deny session_halted
             look {} => allow",
        );
    }

    #[test]
    fn a_halted_tool_is_refused_and_others_go_on() {
        check(
            "rules halted
             halt tool pay
             pay {} => deny session_halted
             look {} => allow
             agent a
             halt agent a
             look {} => stop session_halted
             agent b
             look {} => allow
             halt tenant
             look {} => stop session_halted",
        );
    }
}
