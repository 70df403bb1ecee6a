//! Why a rule had nothing to say, as far as its policy, the call and the calls before it tell.

use std::collections::BTreeMap;

use super::Saw;
use crate::{
    domain::{
        budget::{Dimension, Left, Scope, Spent},
        effect::EffectKind,
        ids::ToolName,
        tool::Risk,
    },
    grpc::v1::ExportCallsResponse,
    policy::Policy,
    rules::{
        after_compaction, breaker, budget, churn, cooldown, cycle, growth, halted,
        levels::Levels,
        phase, poll, refused, repeat, requires, same_call, same_error, schema, side_effects,
        tier::{self, Action},
        unknown_tool::{self, Unknown},
    },
};

/// A call, and what is known of it.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) policy: &'a Policy,
    pub(super) call: &'a ExportCallsResponse,
    /// Who approved it, which silences the rules that ask.
    pub(super) approved_by: Option<&'a str>,
    /// What the rules looked at; none when it cannot be made anew.
    pub(super) saw: Option<&'a Saw>,
}

impl Asked<'_> {
    /// One line for a rule that did not fire.
    pub(super) fn why(&self, rule: &'static str) -> String {
        let tool = self.call.tool.as_str();
        if ToolName::parse("tool", tool).is_ok_and(|name| self.policy.tool(&name).terminal) {
            return format!("not asked: {tool} is a way out, which is never blocked");
        }
        let kind = self.saw.map(|saw| saw.proposal.effect.kind);
        match rule {
            halted::ID => "nothing that it belongs to was halted".to_owned(),
            unknown_tool::ID => self.known(),
            schema::ID => self.schema(),
            phase::ID => self.phase(),
            requires::ID => self.requires(),
            same_call::ID if self.saw.is_some_and(|saw| saw.previous().is_none()) => {
                "not made before in this call tree".to_owned()
            }
            poll::ID if kind.is_some_and(|kind| kind != EffectKind::Poll) => "not declared as a poll".to_owned(),
            repeat::ID if kind == Some(EffectKind::Poll) => "left to poll".to_owned(),
            churn::ID if matches!(kind, Some(EffectKind::Poll | EffectKind::Write)) => {
                "looks at neither writes nor polls".to_owned()
            }
            side_effects::ID => self.side_effects(),
            same_call::ID if self.saw.is_some() => "nothing stood against making it again".to_owned(),
            cooldown::ID => format!("no cooldown of {tool} held"),
            growth::ID => self.growth(),
            budget::ID => self.budget(),
            tier::ID => self.tier(),
            rule => self.levels(rule).map_or_else(|| "nothing to say".to_owned(), fires_from),
        }
    }

    fn approved(&self) -> Option<String> {
        self.approved_by.map(|by| format!("{by} approved it"))
    }

    fn known(&self) -> String {
        let (params, tool) = (&self.policy.rules.unknown_tool, self.call.tool.as_str());
        if self.policy.tools().any(|(declared, _)| declared == tool) {
            format!("{tool} is declared")
        } else if params.patterns.iter().any(|pattern| pattern.matches(tool)) {
            format!("a tier or phase names {tool}")
        } else if params.unknown == Unknown::Allow {
            format!("{tool} is not declared, and the policy lets such tools pass")
        } else {
            self.approved().unwrap_or_else(|| "nothing to say".to_owned())
        }
    }

    fn schema(&self) -> String {
        let tool = self.call.tool.as_str();
        let has_schema = ToolName::parse("tool", tool).is_ok_and(|name| self.policy.has_schema(&name));
        let has_conditions = self.policy.rules.schema.by_tool.contains_key(tool);
        match (has_schema, has_conditions) {
            (false, false) => "no schema is declared for this tool",
            (true, false) => "the arguments are valid",
            (false, true) => "no schema is declared for this tool; its conditions hold",
            (true, true) => "the arguments are valid, and the tool's conditions hold",
        }
        .to_owned()
    }

    fn phase(&self) -> String {
        let phases = &self.policy.rules.phase.phases;
        let allows =
            phases.iter().filter(|phase| phase.tools.as_ref().is_some_and(|tools| tools.matches(&self.call.tool)));
        let names: Vec<&str> = allows.map(|phase| phase.name.as_str()).collect();
        match (phases.is_empty(), names.as_slice()) {
            (true, _) => "no phases in the policy".to_owned(),
            (false, []) => "in no phase".to_owned(),
            (false, names) => format!("{} is for {}", self.call.tool, names.join(" and ")),
        }
    }

    fn requires(&self) -> String {
        let requirements = self.policy.rules.requires.by_tool.get(&self.call.tool).map_or(&[][..], Vec::as_slice);
        let steps: Vec<&str> = requirements.iter().map(|requirement| requirement.tools.as_str()).collect();
        if steps.is_empty() {
            return "requires nothing".to_owned();
        }
        format!("what it requires was there: {}", steps.join(", "))
    }

    fn side_effects(&self) -> String {
        let params = &self.policy.rules.side_effects;
        let Some(saw) = self.saw else { return "nothing to say".to_owned() };
        let effect = &saw.proposal.effect;
        let named = effect.resource.as_ref().filter(|it| it.is_named() && effect.kind == EffectKind::Write);
        let Some(resource) = named else { return "no declared write of a named thing".to_owned() };
        let second = params.by_tool.get(&self.call.tool).copied().unwrap_or(params.second_change);
        if second == side_effects::SecondChange::Allow {
            return "a second change is allowed".to_owned();
        }
        let resource = resource.as_str();
        self.approved().map_or_else(
            || format!("no other call had changed {resource}"),
            |approved| format!("no other call had changed {resource}, or {approved}"),
        )
    }

    fn growth(&self) -> String {
        let params = &self.policy.rules.growth;
        let calls = params.calls_per_second.map(|limit| format!("{limit} calls a second"));
        let tokens = params.tokens_per_minute.or(params.tokens_per_minute_stop);
        let tokens = tokens.map(|limit| format!("{} a minute", Dimension::Tokens.in_words(limit)));
        let limits: Vec<String> = calls.into_iter().chain(tokens).collect();
        if limits.is_empty() { "no limit in the policy".to_owned() } else { format!("below {}", limits.join(" and ")) }
    }

    /// What calls and models cost is not told of stored calls, nor what others spent.
    fn budget(&self) -> String {
        let Some(saw) = self.saw else { return "nothing to say".to_owned() };
        let (counters, session) = (BTreeMap::new(), saw.session());
        let books = budget::Books {
            tree: &saw.tree,
            run: saw.run(),
            session,
            depth: 0,
            agent: None,
            tool: &saw.proposal.request.tool,
            counters: &counters,
            now: saw.now,
        };
        let is_counted = |left: &Left| {
            use Dimension::{CallsPerTool, ConsecutiveSameTool, Steps, ToolCalls};
            matches!(left.scope, Scope::Run | Scope::CallTree)
                && matches!(left.dimension, Steps | ToolCalls | CallsPerTool | ConsecutiveSameTool)
        };
        let left = books.left(&self.policy.rules.budget, &Spent::default());
        let nearest = left.into_iter().filter(is_counted).min_by_key(Left::remaining);
        nearest.map_or_else(
            || "no limit of steps or calls".to_owned(),
            |Left { scope, dimension, used, limit }| {
                let (limit, scope) = (dimension.in_words(limit), scope.as_str().replace('_', " "));
                format!("nearest before it: {used} of {limit} in this {scope}")
            },
        )
    }

    fn tier(&self) -> String {
        let params = &self.policy.rules.tier;
        let tool = self.call.tool.as_str();
        let but = |what: &str| self.approved().map_or_else(|| what.to_owned(), |by| format!("{what}; {by}"));
        if let Some(tier) = params.tier(tool) {
            let action = match tier.action {
                Action::Allow => "allowlist",
                Action::Grant => "per_conversation_grant, and not used up",
                Action::Ask => "hitl",
                Action::Deny => "deny",
            };
            return but(&format!("tier {}: {action}", tier.name));
        }
        let risk = ToolName::parse("tool", tool).ok().and_then(|name| self.policy.tool(&name).risk);
        match risk {
            None if params.tiers.is_empty() => but("no tiers in the policy"),
            None => but("no tier and no risk level"),
            Some(Risk::Medium) => but("no tier; risk level MEDIUM: a grant, and not used up"),
            Some(risk) => but(&format!("no tier; risk level {}", risk.as_str())),
        }
    }

    fn levels(&self, rule: &'static str) -> Option<Levels> {
        let rules = &self.policy.rules;
        let of_all = match rule {
            repeat::ID => &rules.repeat,
            poll::ID => &rules.poll,
            cycle::ID => &rules.cycle,
            breaker::ID => &rules.breaker,
            refused::ID => &rules.refused,
            same_error::ID => &rules.same_error,
            churn::ID => &rules.churn,
            after_compaction::ID => &rules.after_compaction,
            _ => return None,
        };
        Some(*rules.by_tool.get(&(rule, self.call.tool.clone())).unwrap_or(of_all))
    }
}

fn fires_from(levels: Levels) -> String {
    match (levels.warning, levels.critical, levels.break_at) {
        (Some(at), ..) => format!("nothing to say; it warns from {at} on"),
        (None, Some(at), _) => format!("nothing to say; it refuses from {at} on"),
        (None, None, Some(at)) => format!("nothing to say; it breaks the run at {at}"),
        (None, None, None) => "no level in the policy".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn why(tool: &str, approved_by: Option<&str>, rule: &'static str) -> String {
        let policy = crate::policy::compile(POLICY).expect("a good policy");
        let call = ExportCallsResponse { tool: tool.to_owned(), ..ExportCallsResponse::default() };
        Asked { policy: &policy, call: &call, approved_by, saw: None }.why(rule)
    }

    #[test]
    fn a_silent_rule_says_what_its_policy_has_for_the_tool() {
        for (tool, rule, expected) in [
            ("get_order", schema::ID, "the arguments are valid"),
            ("move_order", schema::ID, "no schema is declared for this tool"),
            ("get_order", phase::ID, "get_order is for LOOK and ACT"),
            ("delete_order", requires::ID, "what it requires was there: get_order"),
            ("move_order", requires::ID, "requires nothing"),
            ("get_list", unknown_tool::ID, "a tier or phase names get_list"),
            ("get_order", tier::ID, "tier reads: allowlist"),
            ("move_order", tier::ID, "no tier; risk level MEDIUM: a grant, and not used up"),
            ("get_order", repeat::ID, "nothing to say; it warns from 4 on"),
            ("final_answer", tier::ID, "not asked: final_answer is a way out, which is never blocked"),
        ] {
            assert_eq!(why(tool, None, rule), expected, "{rule}");
        }
    }

    #[test]
    fn an_approval_is_why_a_rule_that_asks_is_silent() {
        assert_eq!(why("delete_order", Some("eve"), tier::ID), "tier drops: hitl; eve approved it");
        assert_eq!(why("move_order", Some("eve"), tier::ID), why("move_order", None, tier::ID) + "; eve approved it");
    }
}
