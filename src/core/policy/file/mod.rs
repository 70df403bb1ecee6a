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

/// A policy of callgate: the parameters of decisions, and the tools, tiers and budgets of a tenant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "callgate policy")]
pub(super) struct PolicyFile {
    /// The one key at the top of the file.
    pub(super) policy_engine: PolicyEngine,
}

/// Every key is optional. A key that is absent has its default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyEngine {
    /// enforce refuses calls. shadow records the decisions and permits every call.
    pub(super) mode: Option<PolicyMode>,
    /// Recognition of duplicates.
    pub(super) deduplication: Deduplication,
    /// Idempotency keys.
    pub(super) idempotency: Idempotency,
    /// Approval requests.
    pub(super) approvals: ApprovalsSection,
    /// Tiers: permissions and rate limits by pattern of tools.
    pub(super) authorization: Authorization,
    /// Phases, in order. A session begins in the first.
    pub(super) phases: Vec<PhaseKeys>,
    /// The phase that a session returns to after a write that failed for good.
    pub(super) after_failed_write: Option<String>,
    /// Loop detectors.
    pub(super) loops: Loops,
    /// Parameters of the advice on retries.
    pub(super) retry: RetrySection,
    /// Validation of arguments. Keys of a tool override it.
    pub(super) validation: Validation,
    /// Storage of arguments and results. Keys of a tool override it.
    pub(super) storage: Storage,
    /// Modes and texts for the model, by rule.
    pub(super) rules: BTreeMap<String, RuleKeys>,
    /// Named sets of policy keys. An entry of tool_schemas replaces the entry of a preset.
    pub(super) presets: Vec<PresetKey>,
    /// Declared tools, by name.
    pub(super) tool_schemas: BTreeMap<String, ToolSection>,
}

/// enforce, or shadow, which records decisions and permits every call.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum PolicyMode {
    Enforce,
    Shadow,
}

/// A named set of policy keys.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum PresetKey {
    /// Polls of commands that run in the background: `command_status`, `process.poll`, `process.log`, and `process`
    /// with action poll or log.
    CommandPolls,
    /// The built-in tools of Claude Code, Codex and Gemini CLI: files, searches, the web, plans, and command lines,
    /// from which the effect is read. It sets no limit on steps and calls.
    CodingAgents,
    /// Deduplication of undeclared tools: from the second identical call on, within `deduplication.window_ms`, the
    /// previous result is returned. It may be stale, since a read can have changed meanwhile.
    Strict,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Deduplication {
    /// semantic_hash hashes canonical arguments after the tool's normalizers. byte_hash hashes all arguments as sent.
    pub(super) strategy: Option<Strategy>,
    /// Scope in which duplicates are recognized. For `once` tools it is always the tenant.
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
    /// Keys are derived from the call's content. The model neither sees nor chooses one.
    pub(super) generation: Option<Generation>,
    /// The header that carries the key.
    pub(super) header: Option<String>,
    /// Transport of the key: a header, or an argument that is hidden from the model.
    pub(super) inject_as: Option<InjectKey>,
    /// The argument that carries the key.
    pub(super) argument: Option<String>,
    /// Time in which a success of a `once` tool answers its repetitions.
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
    /// Time until an approval request expires, which refuses the call.
    pub(super) ttl_ms: Option<u64>,
    /// Approval routes. The first whose tools and risk match the call decides. If none matches, every approver may
    /// answer.
    pub(super) routes: Vec<RouteKeys>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteKeys {
    /// Pattern of its tools: names with `*`, alternatives separated by `|`. All tools by default.
    pub(super) tools: Option<String>,
    /// Least risk level of its tools. Any by default.
    pub(super) risk_level: Option<RiskKey>,
    /// Group of approvers, by its name in credentials.
    pub(super) group: Option<String>,
    /// Approvals that are needed: 1, or 2 of different approvers.
    pub(super) required_approvals: Option<u32>,
    /// Time after which the group of escalate_to may answer too.
    pub(super) escalate_after_ms: Option<u64>,
    /// Second group of approvers.
    pub(super) escalate_to: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Authorization {
    /// Tiers. The first whose pattern matches a tool decides.
    pub(super) tiers: Vec<TierKeys>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TierKeys {
    /// Its name.
    pub(super) name: String,
    /// Pattern of its tools: names with `*`, alternatives separated by `|`.
    pub(super) pattern: String,
    /// Permission of calls: allowlist permits, per_conversation_grant needs a grant, hitl an approval, deny refuses.
    pub(super) action: ActionKey,
    /// Rate limit, as calls per time: `100/min`, `5/s`, `1000/h`, `50/day`.
    pub(super) rate_limit: Option<String>,
    /// Scope of the rate limit: session (with its child sessions) by default.
    pub(super) per: Option<PerKey>,
    /// For per_conversation_grant: number of calls.
    pub(super) ceiling: Option<u64>,
    /// For per_conversation_grant: validity of the grant, from the first call on.
    pub(super) ttl_ms: Option<u64>,
    /// For per_conversation_grant: true if only GrantService makes a grant.
    #[serde(default)]
    pub(super) explicit: bool,
    /// For per_conversation_grant: decision on calls beyond the grant.
    pub(super) when_exceeded: Option<ExceededKey>,
    /// true requires a justification of the caller, and a reason of an approver who denies.
    #[serde(default)]
    pub(super) require_reason: bool,
    /// Where approvals are given: callgate (its approvers, the default), or host (the user of the agent's host, at the
    /// host's own prompt if it has one).
    pub(super) approver: Option<ApproverKey>,
    /// true lets an approver approve several of its requests in one act. Never for two approvers, for tools with
    /// conditions that ask or raise the risk, or for a call of a `once` tool with an amount.
    #[serde(default)]
    pub(super) bulk_approve: bool,
    /// shadow records its refusals and permits the calls.
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
    /// Pattern of the tools that it allows. None by default.
    pub(super) tools: Option<String>,
    /// Phases that may follow.
    #[serde(default)]
    pub(super) next: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Loops {
    /// Calls of the current run that loop detectors count, the latest ones.
    pub(super) window: Option<usize>,
    /// Time without a call that ends a run, if the caller names no runs: 600000 by default. The refusals of loop
    /// detectors end with it; budgets and denials stay.
    pub(super) run_idle_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetrySection {
    /// Attempts of one occurrence, the first included.
    pub(super) attempts: Option<u32>,
    /// Most rate limits in a row after which a retry is advised.
    pub(super) max_consecutive_rate_limits: Option<u32>,
    /// true: a rate limit does not count if its advised wait was kept.
    pub(super) exclude_honored_waits: Option<bool>,
    /// Share of retries that are allowed against the estimate, as probes: 0 to 1.
    pub(super) probe_share: Option<f64>,
    /// Retry budget of a tool over all sessions: retries added for each of its calls.
    pub(super) share_of_calls: Option<f64>,
    /// Retries added to that budget each minute.
    pub(super) per_minute: Option<f64>,
    /// Maximum of that budget.
    pub(super) burst: Option<f64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Validation {
    /// Coercion: treatment of a value of another type that can be read without loss. reject by default.
    pub(super) coercion: Option<CoercionSetting>,
    /// Treatment of fields that a schema does not have. The schema decides by default.
    pub(super) unknown_fields: Option<UnknownFieldsKey>,
    /// Region of phone numbers without a country code, for `e164`: `US`.
    pub(super) phone_region: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Storage {
    /// Stored form of the arguments and of messages about them: full by default.
    pub(super) arguments: Option<StoredKey>,
    /// Stored form of results and errors: full by default.
    pub(super) results: Option<StoredKey>,
    /// Size at which a stored result is cut, in bytes: 262144 by default.
    pub(super) result_bytes_max: Option<u64>,
    /// Further names of fields that are redacted at any depth, next to the built-in ones (`password`, `token`).
    pub(super) redact: Vec<String>,
    /// Names of fields that are not redacted, although the built-in list has them.
    pub(super) not_secret: Vec<String>,
    /// Regular expressions of secrets in texts, next to card numbers and keys.
    pub(super) redact_patterns: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RuleKeys {
    /// Mode of the rule: enforce, shadow or off.
    pub(super) mode: Option<Mode>,
    /// Its text for the model, with the placeholders {message}, {tool}, {reason}, {count} and {next_action}.
    pub(super) message: Option<String>,
}
