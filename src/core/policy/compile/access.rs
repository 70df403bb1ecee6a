//! Compiler of tiers and phases.

use super::{Compiler, nearest, unknown};
use crate::{
    domain::{
        grant::{CallRate, Per, RateLimit},
        ids::Invalid,
        pattern::Pattern,
    },
    policy::file::{ActionKey, ApproverKey, ExceededKey, PerKey, PhaseKeys, PolicyMode, TierKeys},
    rules::{
        phase::{self, SessionPhase},
        requires,
        tier::{self, Action, GrantTerms, Tier},
        unknown_tool::{self, UnknownToolMode},
    },
};

/// Maximum number of tiers.
const TIERS_MAX: usize = 64;
/// Maximum number of phases.
const PHASES_MAX: usize = 16;
/// Maximum number of calls of a rate.
const RATE_CALLS_MAX: u64 = 1_000_000;

/// Windows of a rate, in milliseconds.
const UNITS: [(&str, u64); 8] = [
    ("s", 1_000),
    ("sec", 1_000),
    ("second", 1_000),
    ("min", 60_000),
    ("minute", 60_000),
    ("h", 3_600_000),
    ("hour", 3_600_000),
    ("day", 86_400_000),
];

impl Compiler {
    pub(super) fn pattern(&mut self, path: &str, text: &str) -> Option<Pattern> {
        Pattern::parse(path, text).map_err(|Invalid { field, problem }| self.wrong(field, problem)).ok()
    }

    pub(super) fn tiers(&mut self, keys: Vec<TierKeys>) {
        if keys.len() > TIERS_MAX {
            self.wrong("authorization.tiers", format!("has {} tiers; at most {TIERS_MAX} are allowed", keys.len()));
        }
        for (i, keys) in keys.into_iter().enumerate() {
            let path = format!("authorization.tiers[{i}]");
            let earlier = &self.policy.rules.get::<tier::Params>().tiers;
            let same_name = earlier.iter().any(|tier| tier.name == keys.name);
            let shadows = earlier.iter().find(|tier| covers(&tier.tools, &keys.pattern)).map(|tier| tier.name.clone());
            if keys.name.trim().is_empty() || same_name {
                self.wrong(format!("{path}.name"), "must be a name that no other tier has");
            }
            if let Some(earlier) = shadows {
                let problem = format!("is unreachable: tier {earlier} takes every tool that it could match");
                self.wrong(format!("{path}.pattern"), problem);
            }
            if let Some(tier) = self.tier(&path, &keys) {
                self.policy.rules.get_mut::<tier::Params>().tiers.push(tier);
            }
        }
    }

    fn tier(&mut self, path: &str, keys: &TierKeys) -> Option<Tier> {
        let grants = keys.action == ActionKey::PerConversationGrant;
        let given = [
            ("ceiling", keys.ceiling.is_some()),
            ("ttl_ms", keys.ttl_ms.is_some()),
            ("explicit", keys.explicit),
            ("when_exceeded", keys.when_exceeded.is_some()),
        ];
        for (key, _) in given.iter().filter(|(_, given)| *given && !grants) {
            self.wrong(format!("{path}.{key}"), "is only for action: per_conversation_grant");
        }
        if keys.ceiling == Some(0) {
            self.wrong(format!("{path}.ceiling"), "must be 1 or more; action: deny refuses every call");
        }
        if keys.per.is_some() && keys.rate_limit.is_none() {
            self.wrong(format!("{path}.per"), "says who shares the rate, and no rate_limit is given");
        }
        let asks = keys.action == ActionKey::Hitl || matches!(keys.when_exceeded, Some(ExceededKey::Ask));
        for (key, _) in [("approver", keys.approver.is_some()), ("bulk_approve", keys.bulk_approve)]
            .iter()
            .filter(|(_, given)| *given && !asks)
        {
            let problem = "is only for action: hitl, or when_exceeded: ask: nobody is asked else";
            self.wrong(format!("{path}.{key}"), problem);
        }
        let ttl_ms = self.millis(&format!("{path}.ttl_ms"), keys.ttl_ms);
        let default = GrantTerms::default();
        let rate = keys.rate_limit.as_ref().and_then(|text| self.rate(&format!("{path}.rate_limit"), text));
        Some(Tier {
            name: keys.name.clone(),
            tools: self.pattern(&format!("{path}.pattern"), &keys.pattern)?,
            action: match keys.action {
                ActionKey::Allowlist => Action::Allow,
                ActionKey::PerConversationGrant => Action::Grant,
                ActionKey::Hitl => Action::Ask,
                ActionKey::Deny => Action::Deny,
            },
            grant: GrantTerms {
                ceiling: keys.ceiling.unwrap_or(default.ceiling),
                ttl_ms: ttl_ms.unwrap_or(default.ttl_ms),
                explicit: keys.explicit,
                ask: matches!(keys.when_exceeded, Some(ExceededKey::Ask)),
            },
            rate: rate.map(|rate| RateLimit {
                rate,
                per: match keys.per {
                    None | Some(PerKey::Session) => Per::Session,
                    Some(PerKey::Agent) => Per::Agent,
                    Some(PerKey::Tenant) => Per::Tenant,
                },
            }),
            require_reason: keys.require_reason,
            host_may_approve: keys.approver == Some(ApproverKey::Host),
            bulk_approve: keys.bulk_approve,
            shadow: matches!(keys.mode, Some(PolicyMode::Shadow)),
        })
    }

    fn rate(&mut self, path: &str, text: &str) -> Option<CallRate> {
        let parsed = text.split_once('/').and_then(|(calls, unit)| {
            let calls = calls.trim().parse().ok().filter(|calls| (1..=RATE_CALLS_MAX).contains(calls))?;
            let per_ms = UNITS.iter().find(|(name, _)| *name == unit.trim())?.1;
            Some(CallRate { calls, per_ms })
        });
        if parsed.is_none() {
            self.wrong(path, format!("is {text:?}; it must be like 100/min, with s, min, h or day"));
        }
        parsed
    }

    pub(super) fn phases(&mut self, keys: Vec<PhaseKeys>, after_failed_write: Option<String>) {
        if keys.len() > PHASES_MAX {
            self.wrong("phases", format!("has {} phases; at most {PHASES_MAX} are allowed", keys.len()));
        }
        let names: Vec<String> = keys.iter().map(|phase| phase.name.clone()).collect();
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut reached: Vec<String> = names.first().cloned().into_iter().collect();
        for (i, phase) in keys.iter().enumerate() {
            if phase.name.trim().is_empty() || names[..i].contains(&phase.name) {
                self.wrong(format!("phases[{i}].name"), "must be a name that no other phase has");
            }
            for (j, next) in phase.next.iter().enumerate().filter(|(_, next)| !names.contains(next)) {
                self.wrong(format!("phases[{i}].next[{j}]"), unknown("phase", next, &known));
            }
        }
        for _ in 0..names.len() {
            let from = keys.iter().filter(|phase| reached.contains(&phase.name));
            let next: Vec<String> = from.flat_map(|phase| phase.next.clone()).collect();
            reached.extend(next.into_iter().filter(|name| names.contains(name)));
            reached.dedup();
        }
        reached.extend(after_failed_write.clone());
        for (i, phase) in keys.into_iter().enumerate() {
            if !reached.contains(&phase.name) {
                self.wrong(format!("phases[{i}]"), format!("{} is unreachable: no phase leads to it", phase.name));
            }
            let tools = phase.tools.and_then(|text| self.pattern(&format!("phases[{i}].tools"), &text));
            let phases = &mut self.policy.rules.get_mut::<phase::Params>().phases;
            phases.push(SessionPhase { name: phase.name, tools, next: phase.next });
        }
        if let Some(name) = after_failed_write.as_ref().filter(|name| !names.contains(name)) {
            self.wrong("after_failed_write", unknown("phase", name, &known));
        }
        self.policy.rules.get_mut::<phase::Params>().after_failed_write = after_failed_write;
    }

    /// Patterns that match no declared tool.
    pub(super) fn check_named_tools(&mut self) {
        let names: Vec<String> = self.policy.tools().map(|(name, _)| name.to_owned()).collect();
        if names.is_empty() {
            return;
        }
        let matches_none = |pattern: &Pattern| !names.iter().any(|name| pattern.matches(name));
        let rules = &self.policy.rules;
        let (mut wrong, mut never) = (Vec::new(), Vec::new());
        let are_refused = rules.get::<unknown_tool::Params>().unknown() == UnknownToolMode::Deny;
        for (i, tier) in
            rules.get::<tier::Params>().tiers.iter().enumerate().filter(|(_, tier)| matches_none(&tier.tools))
        {
            let problem = format!("{} matches no declared tool", tier.tools.as_str());
            wrong.push((format!("authorization.tiers[{i}].pattern"), problem));
        }
        for (i, routed) in rules.get::<tier::Params>().routes.iter().enumerate() {
            if let Some(pattern) = routed.tools.as_ref().filter(|pattern| matches_none(pattern)) {
                let problem = format!("{} matches no declared tool, so that nobody is asked by it", pattern.as_str());
                wrong.push((format!("approvals.routes[{i}].tools"), problem));
            }
        }
        for (i, phase) in rules.get::<phase::Params>().phases.iter().enumerate() {
            if phase.tools.as_ref().is_some_and(matches_none) {
                wrong.push((format!("phases[{i}].tools"), "matches no declared tool".to_owned()));
            }
        }
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        for (tool, requirements) in &rules.get::<requires::Params>().by_tool {
            for (i, requirement) in requirements.iter().enumerate() {
                let pattern = requirement.tools.as_str();
                if matches_none(&requirement.tools) {
                    let meant = nearest(pattern, &known).map(|meant| format!("; did you mean `{meant}`?"));
                    let refused = if are_refused { ", and undeclared ones are refused" } else { "" };
                    let problem = format!("{pattern} matches no declared tool{refused}{}", meant.unwrap_or_default());
                    let found = if are_refused { &mut never } else { &mut wrong };
                    found.push((format!("tool_schemas.{tool}.requires[{i}].tool"), problem));
                }
            }
        }
        wrong.into_iter().for_each(|(path, problem)| self.warn(path, problem));
        never.into_iter().for_each(|(path, problem)| self.wrong(path, problem));
    }
}

/// True when earlier patterns cover every name that `pattern` can match: its alternatives, read as names.
fn covers(earlier: &Pattern, pattern: &str) -> bool {
    let mut alternatives = pattern.split('|').map(str::trim);
    alternatives.all(|alternative| {
        // A text that matches only wildcards shows whether the earlier pattern covers all.
        let probe = alternative.replace('*', "\u{1}any\u{1}").replace('?', "\u{1}");
        earlier.matches(&probe) && earlier.matches(&alternative.replace('*', ""))
    })
}
