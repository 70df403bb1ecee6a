//! Types of the policy file: a mirror of its keys, without interpretation; rules read their own keys. The published
//! JSON Schema is derived from these types and those of the rules, and their comments are shown by editors.

mod tools;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::rules::Mode;

pub(super) use tools::{
    CaseKeys, CoercionSetting, ConditionKeys, EffectKey, EmptyKey, FreshKey, OnViolationKey, Requires, RiskKey,
    StoredKey, ThenSection, ToolSection, UnavailableKey, UnknownFieldsKey,
};

/// A policy of callgate: what the owner of a fleet has decided about its tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "callgate policy")]
pub(super) struct PolicyFile {
    /// Everything stands below this key.
    pub(super) policy_engine: PolicyEngine,
}

/// Every key is optional; what is not named keeps its default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyEngine {
    /// enforce: refusals hold. shadow: they are recorded, and every call is let through.
    pub(super) mode: Option<PolicyMode>,
    /// The same call again.
    pub(super) deduplication: Deduplication,
    /// Idempotency keys.
    pub(super) idempotency: Idempotency,
    /// Questions to people.
    pub(super) approvals: ApprovalsSection,
    /// Who may call what, how often.
    pub(super) authorization: Authorization,
    /// Parts of the work, in order; a session begins in the first.
    pub(super) phases: Vec<PhaseKeys>,
    /// The phase that a write which failed for good leads back to.
    pub(super) after_failed_write: Option<String>,
    /// Loop detectors.
    pub(super) loops: Loops,
    /// When a retry is worth it.
    pub(super) retry: RetrySection,
    /// How arguments are checked, unless a tool says otherwise.
    pub(super) validation: Validation,
    /// How much is stored, unless a tool says otherwise.
    pub(super) storage: Storage,
    /// Modes and texts, by rule.
    pub(super) rules: BTreeMap<String, RuleKeys>,
    /// Sets of well-known tools; what tool_schemas says of one of them replaces it.
    pub(super) presets: Vec<PresetKey>,
    /// What is known about tools, by name.
    pub(super) tool_schemas: BTreeMap<String, ToolSection>,
}

/// Whether refusals hold.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum PolicyMode {
    Enforce,
    Shadow,
}

/// A set of well-known tools.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum PresetKey {
    /// Looks at commands that run in the background: `command_status`, `process.poll`, `process.log`, and `process`
    /// with action poll or log.
    CommandPolls,
    /// What Claude Code, Codex and Gemini CLI have built in: files, searches, the web, plans, and lines of a shell,
    /// whose effect is read from the line. It sets no limit on steps and calls.
    CodingAgents,
    /// Undeclared tools are refused by exact repetition: from the second call on, within `deduplication.window_ms`, the
    /// previous result is given again. The cost: what a tool reads may have changed meanwhile.
    Strict,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Deduplication {
    /// semantic_hash: canonical arguments after the tool's normalisers. byte_hash: all arguments as they are.
    pub(super) strategy: Option<Strategy>,
    /// Who shares what has been done; `once` tools always share it in the whole tenant.
    pub(super) scope: Option<ShareKey>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Strategy {
    SemanticHash,
    ByteHash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ShareKey {
    CallTree,
    Agent,
    Tenant,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Idempotency {
    /// Keys are made of the call's content; the model never sees or makes one.
    pub(super) generation: Option<Generation>,
    /// The header that carries the key.
    pub(super) header: Option<String>,
    /// header, or argument: the name of an argument that carries it, hidden from the model.
    pub(super) inject_as: Option<InjectKey>,
    /// The argument that carries the key.
    pub(super) argument: Option<String>,
    /// How long a `once` tool stays done.
    pub(super) ttl_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Generation {
    ContentBased,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum InjectKey {
    Header,
    Argument,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ApprovalsSection {
    /// How long a question to a person stays open before it counts as refused.
    pub(super) ttl_ms: Option<u64>,
    /// Who is asked: the first whose tools and risk fit a call decides. Where none fits, anybody who may answer.
    pub(super) routes: Vec<RouteKeys>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteKeys {
    /// Its tools: names with `*`, alternatives parted by `|`; all where it is left out.
    pub(super) tools: Option<String>,
    /// Tools that are declared to be at least so dangerous; any where it is left out.
    pub(super) risk_level: Option<RiskKey>,
    /// The group whose members may answer, as credentials name it.
    pub(super) group: Option<String>,
    /// Number of different people who must approve: 1 or 2.
    pub(super) required_approvals: Option<u32>,
    /// How long the group has before another one may answer too.
    pub(super) escalate_after_ms: Option<u64>,
    /// That other group.
    pub(super) escalate_to: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Authorization {
    /// The first whose pattern matches a tool decides.
    pub(super) tiers: Vec<TierKeys>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TierKeys {
    /// Its name.
    pub(super) name: String,
    /// Its tools: names with `*`, alternatives parted by `|`.
    pub(super) pattern: String,
    /// What becomes of their calls.
    pub(super) action: ActionKey,
    /// So many calls in a time: `100/min`, `5/s`, `1000/h`, `50/day`.
    pub(super) rate_limit: Option<String>,
    /// Who shares the rate: a session with its sub-agents by default.
    pub(super) per: Option<PerKey>,
    /// For per_conversation_grant: how many calls.
    pub(super) ceiling: Option<u64>,
    /// For per_conversation_grant: for how long from the first call on.
    pub(super) ttl_ms: Option<u64>,
    /// For per_conversation_grant: true when only GrantService gives one.
    #[serde(default)]
    pub(super) explicit: bool,
    /// For per_conversation_grant: what happens once it is used up.
    pub(super) when_exceeded: Option<ExceededKey>,
    /// The caller must give a justification, and who refuses must give a reason.
    #[serde(default)]
    pub(super) require_reason: bool,
    /// Who answers where a person is asked: whoever callgate asks, which is the default, or the user of the agent's
    /// host at the host's own prompt, where it has one.
    pub(super) approver: Option<ApproverKey>,
    /// shadow: its refusals are only recorded.
    pub(super) mode: Option<PolicyMode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ApproverKey {
    Callgate,
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ActionKey {
    Allowlist,
    PerConversationGrant,
    Hitl,
    Deny,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum PerKey {
    Session,
    Agent,
    Tenant,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ExceededKey {
    Deny,
    Ask,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PhaseKeys {
    /// Its name.
    pub(super) name: String,
    /// The tools that it allows, as a pattern; without it, none.
    pub(super) tools: Option<String>,
    /// The phases that it leads to.
    #[serde(default)]
    pub(super) next: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Loops {
    /// Calls of the current run that detectors look back over.
    pub(super) window: Option<usize>,
    /// After so long without a call, a session whose caller names no runs is no longer held to what a loop broke:
    /// 600000 by default. Budgets and denials stay.
    pub(super) run_idle_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetrySection {
    /// Tries of one execution, the first included.
    pub(super) attempts: Option<u32>,
    /// Rate limits in a row that are worth a retry.
    pub(super) max_consecutive_rate_limits: Option<u32>,
    /// true: a rate limit whose wait was kept does not count.
    pub(super) exclude_honored_waits: Option<bool>,
    /// Share of retries that are allowed against the estimate, to learn.
    pub(super) probe_share: Option<f64>,
    /// Retries that a tool may be given for each of its calls, over all sessions.
    pub(super) share_of_calls: Option<f64>,
    /// And for each minute.
    pub(super) per_minute: Option<f64>,
    /// And at most at once.
    pub(super) burst: Option<f64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Validation {
    /// What becomes of a value of another type that can be read as the right one: reject by default.
    pub(super) coercion: Option<CoercionSetting>,
    /// What becomes of fields that a schema does not know; what the schema says by default.
    pub(super) unknown_fields: Option<UnknownFieldsKey>,
    /// The region of phone numbers without a country code, for `e164`: `US`.
    pub(super) phone_region: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Storage {
    /// How much of the arguments is stored, and of what is said of them: full by default.
    pub(super) arguments: Option<StoredKey>,
    /// How much of the results and errors is stored: full by default.
    pub(super) results: Option<StoredKey>,
    /// How large a stored result may be before it is cut, in bytes: 262144, unless it is given.
    pub(super) result_bytes_max: Option<u64>,
    /// Names of fields that are secret wherever they stand, beside those that are known to be (`password`, `token`).
    pub(super) redact: Vec<String>,
    /// Names of fields that are taken for secret and are not.
    pub(super) not_secret: Vec<String>,
    /// Regular expressions: what matches one in a text is secret, beside card numbers and keys.
    pub(super) redact_patterns: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RuleKeys {
    /// Whether its refusals hold.
    pub(super) mode: Option<Mode>,
    /// Its text for the model; {message}, {tool}, {reason}, {count} and {next_action} are filled in.
    pub(super) message: Option<String>,
}
