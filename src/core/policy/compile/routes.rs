//! Compiler of approval routes.

use super::Compiler;
use crate::{
    domain::route::{ApprovalRoute, Escalation, PEOPLE_MAX},
    policy::file::RouteKeys,
    rules::{
        same_call,
        tier::{self, SelectedRoute},
    },
};

/// Maximum number of routes.
const ROUTES_MAX: usize = 64;
/// Maximum length of a group's name, in bytes.
const GROUP_BYTES_MAX: usize = 200;

impl Compiler {
    /// Must run after the expiry of approval requests is known.
    pub(super) fn routes(&mut self, keys: Vec<RouteKeys>) {
        if keys.len() > ROUTES_MAX {
            self.wrong("approvals.routes", format!("has {} routes; at most {ROUTES_MAX} are allowed", keys.len()));
        }
        let mut takes_all = None;
        for (i, keys) in keys.into_iter().enumerate() {
            let path = format!("approvals.routes[{i}]");
            if let Some(earlier) = takes_all {
                self.wrong(&path, format!("is unreachable: approvals.routes[{earlier}] takes every call"));
            }
            if keys.tools.is_none() && keys.risk_level.is_none() {
                takes_all = takes_all.or(Some(i));
            }
            let tools = keys.tools.as_ref().map(|text| self.pattern(&format!("{path}.tools"), text));
            let risk = keys.risk_level.map(Into::into);
            let route = self.route(&path, keys);
            if let Some(route) = route
                && tools != Some(None)
            {
                let routes = &mut self.policy.rules.get_mut::<tier::Params>().routes;
                routes.push(SelectedRoute { tools: tools.flatten(), risk, route });
                self.policy.rules.get_mut::<same_call::Params>().has_approvers = true;
            }
        }
    }

    fn route(&mut self, path: &str, keys: RouteKeys) -> Option<ApprovalRoute> {
        let people = keys.required_approvals.unwrap_or(1);
        if !(1..=PEOPLE_MAX).contains(&people) {
            self.wrong(format!("{path}.required_approvals"), format!("must be 1 or {PEOPLE_MAX}"));
        }
        if keys.group.is_none() && keys.required_approvals.is_none() {
            self.wrong(path, "says neither a group nor required_approvals");
        }
        let after = self.millis(&format!("{path}.escalate_after_ms"), keys.escalate_after_ms);
        for (key, group) in [("group", &keys.group), ("escalate_to", &keys.escalate_to)] {
            let is_name = |name: &String| !name.trim().is_empty() && name.len() <= GROUP_BYTES_MAX;
            if !group.as_ref().is_none_or(is_name) {
                self.wrong(format!("{path}.{key}"), format!("must be a name of 1 to {GROUP_BYTES_MAX} bytes"));
            }
        }
        let ttl = self.policy.approval_ttl_ms;
        let escalation = match (after, keys.escalate_to) {
            (Some(after_ms), Some(_)) if after_ms >= ttl => {
                let problem = format!("must be less than approvals.ttl_ms ({ttl}): the question is closed by then");
                self.wrong(format!("{path}.escalate_after_ms"), problem);
                None
            }
            (Some(_), Some(_)) if keys.group.is_none() => {
                self.wrong(format!("{path}.escalate_to"), "goes with a group: without one, anybody may answer at once");
                None
            }
            (Some(after_ms), Some(group)) => Some(Escalation { after_ms, group }),
            (None, None) => None,
            (Some(_), None) => {
                self.wrong(format!("{path}.escalate_after_ms"), "goes with escalate_to");
                None
            }
            (None, Some(_)) => {
                self.wrong(format!("{path}.escalate_to"), "goes with escalate_after_ms");
                None
            }
        };
        Some(ApprovalRoute { group: keys.group, escalation, people })
    }
}
