//! tier: who may call what, how often, and who must be asked.
//!
//! Fires by the first tier whose pattern matches the tool: `allowlist` permits it, `per_conversation_grant` within a
//! grant, `hitl` needs approval, `deny` refuses; each tier may limit the rate. Without a match, the tool's `risk_level`
//! decides in the same way. Conditions of a tool may deny, need approval, or raise its risk.
//!
//! Why: reading is free, changing is bounded, and an irreversible step is a person's decision.
//!
//! A rate limit is a sliding window. It is counted in sixteenths: a call may have to wait by so much longer than with
//! exact times.
//!
//! Known problems: a rate per agent or tenant may permit one call too many for each one that another replica has
//! permitted in the half second before.

mod params;

use crate::domain::{
    finding::{Decision, Finding, Wording},
    grant::{Per, RateLimit},
    reason::Reason,
    route::ApprovalRoute,
    time::wait_in_words,
    tool::RiskLevel,
};

use super::{RecordedCall, Rule, RuleContext, RuleLogic, condition::ConditionError, context::ASKED_FOR};
pub use params::{
    Action, CEILING_DEFAULT, ConditionalCase, Effects, GRANT_TTL_MS_DEFAULT, GrantTerms, Params, SelectedRoute, Tier,
};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("tier").section("authorization");

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        check(self, cx)
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        let what = match (self.tier(asked.tool), asked.spec.risk) {
            (Some(tier), _) => {
                let action = match tier.action {
                    Action::Allow => "allowlist",
                    Action::Grant => "per_conversation_grant, and not used up",
                    Action::Ask => "hitl",
                    Action::Deny => "deny",
                };
                format!("tier {}: {action}", tier.name)
            }
            (None, None) if self.tiers.is_empty() => "no tiers in the policy".to_owned(),
            (None, None) => "no tier and no risk level".to_owned(),
            (None, Some(RiskLevel::Medium)) => "no tier; risk level MEDIUM: a grant, and not used up".to_owned(),
            (None, Some(risk)) => format!("no tier; risk level {}", risk.as_str()),
        };
        asked.describe_approver().map_or_else(|| what.clone(), |approved| format!("{what}; {approved}"))
    }
}

fn check(params: &Params, cx: &RuleContext<'_>) -> Option<Finding> {
    let mut risk = cx.proposal.spec.risk;
    let mut asks = None;
    for when in params.conditions.get(cx.tool()).into_iter().flatten() {
        match applies(when, cx) {
            Err(problem) => return Some(cx.condition_finding(RULE.id, &problem)),
            Ok(false) => {}
            Ok(true) => match &when.then {
                Effects::Deny => return Some(deny_finding(cx, when.message.as_deref())),
                Effects::Ask => asks = Some(when),
                Effects::Risk(level) => risk = risk.max(Some(*level)),
            },
        }
    }
    let tier = params.tier(cx.tool());
    let found = match (tier, risk) {
        // A risk raised to HIGH by a condition is not lowered by a milder tier.
        (Some(tier), risk) => by_tier(params, tier, cx).or_else(|| {
            let raised = risk == Some(RiskLevel::High) && cx.proposal.spec.risk != Some(RiskLevel::High);
            raised.then(|| hitl(params, cx, "These arguments make it a high risk"))
        }),
        (None, Some(RiskLevel::Low)) => None,
        (None, Some(RiskLevel::Medium)) => grant_finding(&GrantTerms::default(), "risk:MEDIUM", cx),
        (None, Some(RiskLevel::High)) => Some(hitl(params, cx, "It is a high risk")),
        (None, None) if params.tiers.is_empty() => None,
        (None, None) => {
            let situation = format!("{} has no tier and no risk level: a person must approve it.", cx.tool());
            let message = Wording::new(situation, ASKED_FOR);
            Some(Finding::new(RULE.id, Decision::Ask, Reason::UnknownRiskLevel, message))
        }
    };
    let found = found.map(|finding| Finding { enforced: tier.is_none_or(|tier| !tier.shadow), ..finding });
    let asked = asks.map(|when| ask(asks_for(cx, when.message.as_deref())));
    let stricter = match (found, asked) {
        (Some(found), Some(asked)) => Some(if asked.decision > found.decision { asked } else { found }),
        (found, asked) => found.or(asked),
    };
    let raised_risk = risk.filter(|risk| Some(*risk) > cx.proposal.spec.risk);
    stricter.map(|finding| Finding { raised_risk, ..finding })
}

fn by_tier(params: &Params, tier: &Tier, cx: &RuleContext<'_>) -> Option<Finding> {
    let tool = cx.tool();
    if tier.require_reason && cx.proposal.request.justification.as_ref().is_none_or(|text| text.trim().is_empty()) {
        let parameter = cx.sayable().and_then(|sayable| sayable.justification.as_ref());
        let message = parameter.map_or_else(
            || {
                Wording::new(
                    format!(
                        "{tool} was not run: the application must send a justification with it, and you cannot give \
                         one in the arguments."
                    ),
                    "Say in one sentence why the call is needed, so that the application can pass that on, or tell the \
                     user.",
                )
            },
            |parameter| {
                Wording::new(
                    format!("{tool} was not run: it needs a justification."),
                    format!(
                        "Call it again with the same arguments, and say in `{parameter}` in one sentence why the call \
                         is needed."
                    ),
                )
            },
        );
        return Some(
            Finding::new(RULE.id, Decision::Deny, Reason::ValidationError, message)
                .violating(vec![params::no_reason(parameter)]),
        );
    }
    let by_action = match tier.action {
        Action::Allow => None,
        Action::Deny => Some(deny_finding(cx, None)),
        Action::Ask => Some(hitl(params, cx, "The policy wants it so")),
        Action::Grant => grant_finding(&tier.grant, &tier.key(), cx),
    };
    by_action.or_else(|| tier.rate.as_ref().and_then(|rate| too_fast(tier, rate, cx)))
}

fn applies(when: &ConditionalCase, cx: &RuleContext<'_>) -> Result<bool, ConditionError> {
    when.condition.evaluate(&cx.condition_variables(&|_| None))
}

fn ask(message: impl Into<Wording>) -> Finding {
    Finding::new(RULE.id, Decision::Ask, Reason::ApprovalRequired, message)
}

fn asks_for(cx: &RuleContext<'_>, message: Option<&str>) -> String {
    message.map_or_else(|| format!("{} with these arguments needs a person's approval.", cx.tool()), str::to_owned)
}

fn hitl(params: &Params, cx: &RuleContext<'_>, why: &str) -> Finding {
    let route = params.route(cx.tool(), cx.proposal.spec.risk);
    let approval = if *route == ApprovalRoute::ANYBODY {
        "a person's approval".to_owned()
    } else {
        format!("the approval of {}", route.describe_approvers())
    };
    let people = format!("{} needs {approval}. {why}.", cx.tool());
    ask(Wording::new(people.as_str(), ASKED_FOR)).telling_people(people)
}

fn deny_finding(cx: &RuleContext<'_>, message: Option<&str>) -> Finding {
    let text = message.map_or_else(
        || {
            let situation = format!("{} was not run: the policy does not allow it.", cx.tool());
            Wording::new(situation, "Use another tool, or tell the user.")
        },
        Wording::from,
    );
    Finding::new(RULE.id, Decision::Deny, Reason::ToolDenied, text)
}

fn grant_finding(terms: &GrantTerms, key: &str, cx: &RuleContext<'_>) -> Option<Finding> {
    if cx.grant().is_some() {
        return None;
    }
    let tool = cx.tool();
    let open = cx.tree.uses.get(key);
    let message = match open {
        _ if terms.explicit => format!("{tool} needs a grant, and this session has none that is left."),
        Some(open) if cx.now.since_ms(open.opened_at) >= terms.ttl_ms => {
            format!("{tool} was granted to this session for {}, which are over.", wait_in_words(terms.ttl_ms))
        }
        Some(open) if open.used >= terms.ceiling && terms.ceiling == 1 => {
            format!("This session was granted 1 call of {tool} and its like, and it is used up.")
        }
        Some(open) if open.used >= terms.ceiling => {
            format!("This session was granted {} calls of {tool} and its like, and they are used up.", terms.ceiling)
        }
        _ => return None,
    };
    let (decision, next) = if terms.ask {
        (Decision::Ask, "A person must approve more.")
    } else {
        (Decision::Deny, "Tell the user what was done and what is missing.")
    };
    Some(Finding::new(RULE.id, decision, Reason::GrantExceeded, Wording::new(message, next)))
}

fn too_fast(tier: &Tier, rate: &RateLimit, cx: &RuleContext<'_>) -> Option<Finding> {
    let wait_ms = match rate.per {
        Per::Session => {
            let recent = cx.tree.uses.get(&tier.key()).map(|used| used.recent.as_slice()).unwrap_or_default();
            rate.rate.wait_ms(recent, cx.now)
        }
        Per::Agent | Per::Tenant => {
            let keys = rate.counters(&tier.name, cx.proposal.request.agent.as_ref(), cx.now);
            let used: Vec<u64> = keys.iter().map(|key| cx.counters.get(key).copied().unwrap_or(0)).collect();
            rate.shared_wait_ms(&used, cx.now)
        }
    };
    (wait_ms > 0).then(|| {
        let waits = cx.who_waits();
        let situation = format!(
            "{} was not run yet: the policy allows {} call{} of it and its like in {}. It may run in {}.",
            cx.tool(),
            rate.rate.calls,
            if rate.rate.calls == 1 { "" } else { "s" },
            wait_in_words(rate.rate.per_ms),
            wait_in_words(wait_ms)
        );
        let message = Wording::new(situation, waits);
        Finding::new(RULE.id, Decision::Wait, Reason::RateLimitedByPolicy, message).retry_after(wait_ms)
    })
}

#[cfg(test)]
#[path = "tier/tests.rs"]
mod tests;
