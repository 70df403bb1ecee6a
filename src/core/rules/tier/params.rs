//! Parameters of tiers, grants, conditions and approval routes.

use std::collections::BTreeMap;

use crate::{
    domain::{
        grant::RateLimit,
        ids::ParameterName,
        pattern::Pattern,
        route::ApprovalRoute,
        tool::RiskLevel,
        violation::{OnViolation, Violation},
    },
    rules::condition::Condition,
};

/// Default ceiling of a grant, in calls.
pub const CEILING_DEFAULT: u64 = 10;
/// Default lifetime of a grant, in milliseconds: one hour.
pub const GRANT_TTL_MS_DEFAULT: u64 = 3_600_000;

/// Action of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `allowlist`: permitted.
    Allow,
    /// `per_conversation_grant`: permitted within a grant.
    Grant,
    /// `hitl`: needs approval.
    Ask,
    /// `deny`: refused.
    Deny,
}

/// Terms of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantTerms {
    /// Maximum number of calls.
    pub ceiling: u64,
    /// Lifetime from the first call on, in milliseconds.
    pub ttl_ms: u64,
    /// True when only the API creates grants; otherwise the first call does.
    pub explicit: bool,
    /// True when an exhausted grant needs approval; otherwise it refuses.
    pub ask: bool,
}

impl Default for GrantTerms {
    fn default() -> Self {
        Self { ceiling: CEILING_DEFAULT, ttl_ms: GRANT_TTL_MS_DEFAULT, explicit: false, ask: false }
    }
}

/// Tools with the same access rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Its tools.
    pub tools: Pattern,
    /// Action.
    pub action: Action,
    /// Terms of its grants.
    pub grant: GrantTerms,
    /// Rate limit.
    pub rate: Option<RateLimit>,
    /// True when the caller must give a justification, and a denial a reason.
    pub require_reason: bool,
    /// True when the user of an agent's host may approve, at the host's prompt.
    pub host_may_approve: bool,
    /// True when several of its requests may be approved in one act.
    pub bulk_approve: bool,
    /// Shadow mode: refusals are only recorded.
    pub shadow: bool,
}

impl Tier {
    /// The key of its use.
    #[must_use]
    pub fn key(&self) -> String {
        format!("tier:{}", self.name)
    }
}

/// Consequence of a tool's condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// The call is refused.
    Deny,
    /// The call needs approval.
    Ask,
    /// The tool has at least this risk.
    Risk(RiskLevel),
}

/// A condition of a tool with its consequence.
#[derive(Debug, Clone, PartialEq)]
pub struct ConditionalCase {
    /// Condition.
    pub condition: Condition,
    /// Consequence.
    pub then: Effects,
    /// Message; none for a generic one.
    pub message: Option<String>,
}

/// Approval route with its selectors.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectedRoute {
    /// Tools; none for all.
    pub tools: Option<Pattern>,
    /// Minimum declared risk; none for any.
    pub risk: Option<RiskLevel>,
    /// Route.
    pub route: ApprovalRoute,
}

/// Tiers, routes, and conditions of tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// Routes; the first match applies, otherwise every approver may answer.
    pub routes: Vec<SelectedRoute>,
    /// Tiers; the first matching pattern decides.
    pub tiers: Vec<Tier>,
    /// By tool.
    pub conditions: BTreeMap<String, Vec<ConditionalCase>>,
}

impl Params {
    /// The tier of a tool.
    #[must_use]
    pub fn tier(&self, tool: &str) -> Option<&Tier> {
        self.tiers.iter().find(|tier| tier.tools.matches(tool))
    }

    /// True when several requests of the tool may be approved in one act: its tier says so, and no condition of the
    /// tool may ask or raise the risk, of which the approver of several would see nothing.
    #[must_use]
    pub fn bulk_approves(&self, tool: &str) -> bool {
        let weighs = |case: &ConditionalCase| matches!(case.then, Effects::Ask | Effects::Risk(_));
        self.tier(tool).is_some_and(|tier| tier.bulk_approve)
            && !self.conditions.get(tool).is_some_and(|cases| cases.iter().any(weighs))
    }

    /// The approval route of a tool's calls.
    #[must_use]
    pub fn route(&self, tool: &str, risk: Option<RiskLevel>) -> &ApprovalRoute {
        let fits = |routed: &&SelectedRoute| {
            routed.tools.as_ref().is_none_or(|tools| tools.matches(tool))
                && routed.risk.is_none_or(|at| risk >= Some(at))
        };
        self.routes.iter().find(fits).map_or(&ApprovalRoute::ANYBODY, |routed| &routed.route)
    }

    /// The tier and rate limit of a tool.
    #[must_use]
    pub fn rate(&self, tool: &str) -> Option<(&str, &RateLimit)> {
        let tier = self.tier(tool).filter(|tier| !tier.shadow)?;
        Some((&tier.name, tier.rate.as_ref()?))
    }
}

pub(super) fn no_reason(parameter: Option<&ParameterName>) -> Violation {
    Violation {
        field: parameter.map_or("justification", ParameterName::as_str).to_owned(),
        message: parameter.map_or_else(
            || "justification is missing: the application sends it with the call, it is no argument".to_owned(),
            |parameter| format!("{parameter} is missing: one sentence that says why the call is needed"),
        ),
        keyword: "require_reason".to_owned(),
        on_violation: OnViolation::SelfCorrect,
        user_facing_hint: None,
        is_hopeless: false,
    }
}
