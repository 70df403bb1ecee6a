//! What tiers say.

use std::collections::BTreeMap;

use crate::{
    domain::{
        grant::RateLimit,
        ids::ParameterName,
        pattern::Pattern,
        route::Route,
        tool::Risk,
        violation::{OnViolation, Violation},
    },
    rules::condition::Condition,
};

/// Calls of a grant that names no ceiling.
pub const CEILING_DEFAULT: u64 = 10;
/// How long a grant that names no time lasts, in milliseconds: one hour.
pub const GRANT_TTL_MS_DEFAULT: u64 = 3_600_000;

/// What a tier does with its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `allowlist`: they pass.
    Allow,
    /// `per_conversation_grant`: they pass as often as was granted.
    Grant,
    /// `hitl`: a person is asked.
    Ask,
    /// `deny`: they are refused.
    Deny,
}

/// How much a grant gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantTerms {
    /// How many calls.
    pub ceiling: u64,
    /// For how long from the first call on, in milliseconds.
    pub ttl_ms: u64,
    /// True when only the API gives one; else it opens with the first call.
    pub explicit: bool,
    /// True when a person is asked once it is used up; else the call is refused.
    pub ask: bool,
}

impl Default for GrantTerms {
    fn default() -> Self {
        Self { ceiling: CEILING_DEFAULT, ttl_ms: GRANT_TTL_MS_DEFAULT, explicit: false, ask: false }
    }
}

/// Tools that are handled alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Its tools.
    pub tools: Pattern,
    /// What it does with them.
    pub action: Action,
    /// How much a grant gives.
    pub grant: GrantTerms,
    /// How fast they may come.
    pub rate: Option<RateLimit>,
    /// True when the caller must say why, and who refuses must too.
    pub require_reason: bool,
    /// True when the user of an agent's host may answer, at the host's own prompt.
    pub host_may_approve: bool,
    /// True when its refusals are only recorded.
    pub shadow: bool,
}

impl Tier {
    /// The name under which its use is counted.
    #[must_use]
    pub fn key(&self) -> String {
        format!("tier:{}", self.name)
    }
}

/// What a condition of a tool leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// The call is refused.
    Deny,
    /// A person is asked.
    Ask,
    /// The tool counts as at least that dangerous.
    Risk(Risk),
}

/// A condition of a tool that leads to something.
#[derive(Debug, Clone, PartialEq)]
pub struct When {
    /// When it holds …
    pub condition: Condition,
    /// … this follows.
    pub then: Effects,
    /// What is said; none says it in general.
    pub message: Option<String>,
}

/// Whose questions are whose.
#[derive(Debug, Clone, PartialEq)]
pub struct Routed {
    /// Its tools; none for all.
    pub tools: Option<Pattern>,
    /// At least so dangerous, by what the tool's declaration says; none for any.
    pub risk: Option<Risk>,
    /// Who is asked.
    pub route: Route,
}

/// Tiers, and the conditions of tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// The first that fits says who is asked about a call; where none does, anybody who may answer.
    pub routes: Vec<Routed>,
    /// The first whose pattern matches decides.
    pub tiers: Vec<Tier>,
    /// By tool.
    pub conditions: BTreeMap<String, Vec<When>>,
}

impl Params {
    /// The tier of a tool.
    #[must_use]
    pub fn tier(&self, tool: &str) -> Option<&Tier> {
        self.tiers.iter().find(|tier| tier.tools.matches(tool))
    }

    /// Who is asked about a tool's calls.
    #[must_use]
    pub fn route(&self, tool: &str, risk: Option<Risk>) -> &Route {
        let fits = |routed: &&Routed| {
            routed.tools.as_ref().is_none_or(|tools| tools.matches(tool))
                && routed.risk.is_none_or(|at| risk >= Some(at))
        };
        self.routes.iter().find(fits).map_or(&Route::ANYBODY, |routed| &routed.route)
    }

    /// The tier and rate limit that hold for a tool.
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
