//! The YAML file's form: a mirror of its keys, and nothing decided yet. Its published JSON Schema is derived from these
//! types, and their comments are what an editor shows.

mod tools;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use tools::{
    CaseKeys, Coercion, ConditionKeys, EffectKey, EmptyKey, OnViolationKey, Requires, RiskKey, SecondChangeKey,
    StoredKey, Then, Tool, UnavailableKey, UnknownFieldsKey,
};

/// A policy of callgate: what the owner of a fleet has decided about its tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "callgate policy")]
pub(super) struct File {
    /// Everything stands below this key.
    pub(super) policy_engine: PolicyEngine,
}

/// Every key is optional; what is not named keeps its default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyEngine {
    /// enforce: refusals hold. shadow: they are recorded, and every call is let through.
    pub(super) mode: Option<PolicyMode>,
    /// Tools that nothing here names: deny once any tool is declared, else allow.
    pub(super) unknown_tools: Option<UnknownKey>,
    /// The same call again.
    pub(super) deduplication: Deduplication,
    /// Idempotency keys.
    pub(super) idempotency: Idempotency,
    /// Questions to people.
    pub(super) approvals: Approvals,
    /// Who may call what, how often.
    pub(super) authorization: Authorization,
    /// Parts of the work, in order; a session begins in the first.
    pub(super) phases: Vec<PhaseKeys>,
    /// The phase that a write which failed for good leads back to.
    pub(super) after_failed_write: Option<String>,
    /// A second change of one thing in a call tree.
    pub(super) side_effects: SideEffects,
    /// Loop detectors.
    pub(super) loops: Loops,
    /// Tools that are limited or down for everybody.
    pub(super) cooldown: Cooldown,
    /// The runaway brake.
    pub(super) growth: Growth,
    /// Limits per run, call tree, and UTC day of an agent and of the tenant. 0 lifts a limit.
    pub(super) budgets: BTreeMap<ScopeKey, BudgetKeys>,
    /// When a retry is worth it.
    pub(super) retry: Retry,
    /// How arguments are checked, unless a tool says otherwise.
    pub(super) validation: Validation,
    /// How much is stored, unless a tool says otherwise.
    pub(super) storage: Storage,
    /// Modes and texts, by rule.
    pub(super) rules: BTreeMap<String, RuleKeys>,
    /// Sets of well-known tools; what tool_schemas says of one of them replaces it.
    pub(super) presets: Vec<PresetKey>,
    /// What is known about tools, by name.
    pub(super) tool_schemas: BTreeMap<String, Tool>,
}

/// Whether refusals hold.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum PolicyMode {
    Enforce,
    Shadow,
}

/// Whether a rule's refusals hold; off: it does not run.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ModeKey {
    Enforce,
    Shadow,
    Off,
}

/// A set of well-known tools.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum PresetKey {
    /// Looks at commands that run in the background: `command_status`, and `process` with action poll or log.
    CommandPolls,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum UnknownKey {
    Allow,
    Ask,
    Deny,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Deduplication {
    /// How long a success of a declared read or write answers its repetition.
    pub(super) window_ms: Option<u64>,
    /// semantic_hash: canonical arguments after the tool's normalisers. byte_hash: all arguments as they are.
    pub(super) strategy: Option<Strategy>,
    /// Who shares what has been done; `once` tools always share it in the whole tenant.
    pub(super) scope: Option<ShareKey>,
    /// So many identical successes break, whatever their results. Off by default.
    pub(super) loop_threshold: Option<u32>,
    /// So many executions of one call are allowed in a run. Off by default.
    pub(super) max_repeat: Option<u32>,
    /// How many calls loop_threshold and max_repeat look back; the window of the loops by default.
    pub(super) last_n: Option<u32>,
    /// Equal results after which an undeclared tool is slowed.
    pub(super) same_results: Option<u32>,
    /// For how long; doubles with each equal result.
    pub(super) recheck_ms: Option<u64>,
    /// The longest that it is slowed.
    pub(super) recheck_ms_max: Option<u64>,
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
pub(super) struct Approvals {
    /// How long a question to a person stays open before it counts as refused.
    pub(super) ttl_ms: Option<u64>,
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
    /// shadow: its refusals are only recorded.
    pub(super) mode: Option<PolicyMode>,
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
pub(super) struct SideEffects {
    /// What becomes of a second change of one thing: ask by default.
    pub(super) second_change: Option<SecondChangeKey>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Loops {
    /// Calls of the current run that detectors look back over.
    pub(super) window: Option<usize>,
    pub(super) repeat: Option<LevelKeys>,
    pub(super) poll: Option<LevelKeys>,
    pub(super) cycle: Option<LevelKeys>,
    pub(super) breaker: Option<LevelKeys>,
    pub(super) same_error: Option<LevelKeys>,
    pub(super) churn: Option<LevelKeys>,
    pub(super) refused: Option<LevelKeys>,
    pub(super) unknown_tool: Option<LevelKeys>,
    pub(super) after_compaction: Option<LevelKeys>,
}

/// At what count a detector warns, refuses, and breaks the run; absent is never.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LevelKeys {
    pub(super) warning: Option<u32>,
    pub(super) critical: Option<u32>,
    #[serde(rename = "break")]
    pub(super) break_at: Option<u32>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Growth {
    /// Calls a second of one call tree; more must wait.
    pub(super) calls_per_second: Option<u32>,
    /// So many waits within ten seconds, then the run is stopped.
    pub(super) patience: Option<u32>,
    /// Tokens a minute of one call tree; more must wait.
    pub(super) tokens_per_minute: Option<u64>,
    /// Tokens a minute at which the run is stopped.
    pub(super) tokens_per_minute_stop: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScopeKey {
    Run,
    CallTree,
    Agent,
    Tenant,
}

/// A limit of 0 lifts the default one.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BudgetKeys {
    /// New call ids, refused ones too.
    pub(super) max_steps: Option<u64>,
    /// Permitted calls.
    pub(super) max_tool_calls: Option<u64>,
    /// US dollars, of the model and of the tools.
    pub(super) max_total_cost_usd: Option<f64>,
    /// Tokens of the model.
    pub(super) max_tokens: Option<u64>,
    /// Milliseconds since the scope began.
    pub(super) max_elapsed_ms: Option<u64>,
    /// Permitted calls of any one tool.
    pub(super) max_calls_per_tool: Option<u64>,
    /// Calls of one tool in a row.
    pub(super) max_consecutive_same_tool: Option<u64>,
    /// How deep sub-agents are nested.
    pub(super) max_session_depth: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retry {
    /// Tries of one execution, the first included.
    pub(super) attempts: Option<u32>,
    /// Rate limits in a row that are worth a retry.
    pub(super) rate_limit_run: Option<u32>,
    /// true: a rate limit whose wait was kept does not count.
    pub(super) unless_wait_honoured: Option<bool>,
    /// Share of retries that are allowed against the estimate, to learn.
    pub(super) explore: Option<f64>,
    /// Retries that a tool may be given for each of its calls, over all sessions.
    pub(super) share_of_calls: Option<f64>,
    /// And for each minute.
    pub(super) per_minute: Option<f64>,
    /// And at most at once.
    pub(super) saved_up: Option<f64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cooldown {
    /// The longest time that everybody leaves a tool alone.
    pub(super) max_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Validation {
    /// What becomes of a value of another type that can be read as the right one: reject by default.
    pub(super) coercion: Option<Coercion>,
    /// What becomes of fields that a schema does not know; what the schema says by default.
    pub(super) unknown_fields: Option<UnknownFieldsKey>,
    /// The region of phone numbers without a country code, for `e164`: `US`.
    pub(super) phone_region: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Storage {
    /// How much of the arguments is stored: full by default.
    pub(super) arguments: Option<StoredKey>,
    /// How much of the results is stored: full by default.
    pub(super) results: Option<StoredKey>,
    /// Fields whose values `redacted` leaves out, wherever they stand.
    pub(super) redact: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RuleKeys {
    /// Whether its refusals hold.
    pub(super) mode: Option<ModeKey>,
    /// Its text for the model; {message}, {tool}, {reason}, {count} and {next_action} are filled in.
    pub(super) message: Option<String>,
}
