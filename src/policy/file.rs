//! The YAML file's form: a mirror of its keys, and nothing decided yet.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) policy_engine: PolicyEngine,
}

/// Everything below the root key.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyEngine {
    pub(super) mode: Option<ModeKey>,
    pub(super) deduplication: Deduplication,
    pub(super) idempotency: Idempotency,
    pub(super) loops: Loops,
    pub(super) cooldown: Cooldown,
    pub(super) growth: Growth,
    pub(super) budgets: BTreeMap<ScopeKey, BudgetKeys>,
    pub(super) retry: Retry,
    pub(super) rules: BTreeMap<String, RuleKeys>,
    pub(super) tool_schemas: BTreeMap<String, Tool>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ModeKey {
    Enforce,
    Shadow,
    Off,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Deduplication {
    pub(super) window_ms: Option<u64>,
    pub(super) same_results: Option<u32>,
    pub(super) recheck_ms: Option<u64>,
    pub(super) recheck_ms_max: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Idempotency {
    pub(super) ttl_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Loops {
    pub(super) window: Option<usize>,
    pub(super) repeat: Option<LevelKeys>,
    pub(super) poll: Option<LevelKeys>,
    pub(super) cycle: Option<LevelKeys>,
    pub(super) breaker: Option<LevelKeys>,
    pub(super) refused: Option<LevelKeys>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LevelKeys {
    pub(super) warning: Option<u32>,
    pub(super) critical: Option<u32>,
    #[serde(rename = "break")]
    pub(super) break_at: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Growth {
    pub(super) calls_per_second: Option<u32>,
    pub(super) patience: Option<u32>,
    pub(super) tokens_per_minute: Option<u64>,
    pub(super) tokens_per_minute_stop: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScopeKey {
    Run,
    CallTree,
    Agent,
    Tenant,
}

/// A limit of 0 lifts the default one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BudgetKeys {
    pub(super) max_steps: Option<u64>,
    pub(super) max_tool_calls: Option<u64>,
    pub(super) max_total_cost_usd: Option<f64>,
    pub(super) max_tokens: Option<u64>,
    pub(super) max_elapsed_ms: Option<u64>,
    pub(super) max_calls_per_tool: Option<u64>,
    pub(super) max_consecutive_same_tool: Option<u64>,
    pub(super) max_session_depth: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retry {
    pub(super) attempts: Option<u32>,
    pub(super) rate_limit_run: Option<u32>,
    pub(super) unless_wait_honoured: Option<bool>,
    pub(super) explore: Option<f64>,
    pub(super) share_of_calls: Option<f64>,
    pub(super) per_minute: Option<f64>,
    pub(super) saved_up: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cooldown {
    pub(super) max_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleKeys {
    pub(super) mode: ModeKey,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tool {
    pub(super) effect: EffectKey,
    pub(super) side_effect_resource: Option<String>,
    pub(super) once: bool,
    pub(super) idempotent: bool,
    pub(super) lease_ms: Option<u64>,
    pub(super) volatile: Vec<String>,
    pub(super) cost_usd: Option<f64>,
    pub(super) retryable: Option<bool>,
    pub(super) suggested_next: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EffectKey {
    #[default]
    Unknown,
    Read,
    Write,
    Poll,
}
