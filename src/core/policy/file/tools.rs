//! Types of the policy file for one tool.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::PolicyMode;
use crate::rules::{levels::DetectorLevels, side_effects::SecondChange};

/// Declaration of one tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::policy) struct ToolSection {
    /// Risk level, for tools that no tier matches: LOW is permitted, MEDIUM needs a grant, HIGH an approval.
    pub(in crate::policy) risk_level: Option<RiskKey>,
    /// Effect on its resource. A tool with a resource and no effect writes it.
    pub(in crate::policy) effect: Option<EffectKey>,
    /// Resource, with placeholders for arguments: `order/{order_id}`.
    pub(in crate::policy) side_effect_resource: Option<String>,
    /// Argument that holds a command line. Effect and resource (`file/PATH`) are read from it.
    pub(in crate::policy) command_line: Option<String>,
    /// Argument that holds the absolute path of the directory in which the command line runs.
    pub(in crate::policy) working_directory: Option<String>,
    /// Other effects for some arguments. The first case that matches decides.
    pub(in crate::policy) effects: Vec<CaseKeys>,
    /// Greatest age of a previous result that answers a repeated read: milliseconds, 0 for never, or always for data
    /// that never changes. By default 60000, or deduplication.window_ms if that is set.
    pub(in crate::policy) fresh_ms: Option<FreshKey>,
    /// A read of data that only its own call tree changes: the previous result is valid until a write of the tree.
    pub(in crate::policy) private_to_call_tree: bool,
    /// A write that must not be repeated: a payment, a message.
    pub(in crate::policy) once: bool,
    /// A write whose repetition is harmless.
    pub(in crate::policy) idempotent: bool,
    /// A write whose provider honours the idempotency key: after a timeout it may be sent again with the key, where the
    /// execution received that (`key_sent`).
    pub(in crate::policy) key_honored: bool,
    /// A write whose identical repetition is meant: scroll, next page, append, take from a queue.
    pub(in crate::policy) repeatable: bool,
    /// A tool that ends the work (`final_answer`). It is never refused nor charged.
    pub(in crate::policy) terminal: bool,
    /// Decision on a second change of its resource in a call tree.
    pub(in crate::policy) second_change: Option<SecondChange>,
    /// Fields of the arguments in the fingerprint. All of them by default. `customer.id` names a nested one.
    pub(in crate::policy) canonical_fields: Vec<String>,
    /// Canonical form of values, by field: to_int, to_number, to_bool, to_upper, to_lower, trim,
    /// collapse_whitespace, e164, iso_date, iso_datetime_utc, email, url, sort, path.
    pub(in crate::policy) normalizers: BTreeMap<String, String>,
    /// JSON Schema (2020-12) of its arguments.
    pub(in crate::policy) schema: Option<Value>,
    /// Coercion: treatment of a value of another type that can be read without loss.
    pub(in crate::policy) coercion: Option<CoercionSetting>,
    /// Treatment of fields that the schema does not have.
    pub(in crate::policy) unknown_fields: Option<UnknownFieldsKey>,
    /// Conditions over the arguments, in CEL.
    pub(in crate::policy) conditions: Vec<ConditionKeys>,
    /// Earlier successes that a call requires.
    pub(in crate::policy) requires: Vec<Requires>,
    /// Lease: time until the outcome of a permitted call counts as unknown. 600000 by default.
    pub(in crate::policy) lease_ms: Option<u64>,
    /// JSON pointers to volatile parts of the result (`*` for any element), which the result digest omits.
    pub(in crate::policy) volatile: Vec<String>,
    /// JSON pointers to is_complete and total_matches in the result.
    pub(in crate::policy) result_map: ResultMap,
    /// Meaning of an empty result without further fields.
    pub(in crate::policy) empty_means: Option<EmptyKey>,
    /// Cost of a call in US dollars, if the caller gives no estimate.
    pub(in crate::policy) cost_usd: Option<f64>,
    /// Are its failures worth a retry, while too little is learned?
    pub(in crate::policy) retryable: Option<bool>,
    /// Tools to suggest if a call is refused.
    pub(in crate::policy) suggested_next: Vec<String>,
    /// Levels of loop detectors for this tool, by detector.
    pub(in crate::policy) loops: BTreeMap<String, DetectorLevels>,
    /// Stored form of its arguments and results.
    pub(in crate::policy) storage: ToolStorage,
    /// Decision on its calls while the database is unavailable: deny by default. Only a read can be allowed.
    pub(in crate::policy) on_store_unavailable: Option<UnavailableKey>,
    /// shadow records its refusals and permits the calls.
    pub(in crate::policy) mode: Option<PolicyMode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(in crate::policy) enum RiskKey {
    Low,
    Medium,
    High,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::policy) enum EffectKey {
    Unknown,
    Read,
    Write,
    Poll,
    Check,
}

/// Another effect for some arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct CaseKeys {
    /// When this condition holds (CEL) …
    pub(in crate::policy) when: Option<String>,
    /// … or this field …
    pub(in crate::policy) field: Option<String>,
    /// … matches this regular expression …
    pub(in crate::policy) matches: Option<String>,
    /// … the effect is this …
    pub(in crate::policy) effect: EffectKey,
    /// … on this resource.
    pub(in crate::policy) side_effect_resource: Option<String>,
    /// For a read: greatest age of a previous result, as for the tool.
    pub(in crate::policy) fresh_ms: Option<FreshKey>,
}

/// Greatest age of a previous result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "must be a number of milliseconds, or always")]
pub(in crate::policy) enum FreshKey {
    Ms(u64),
    Word(AlwaysKey),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::policy) enum AlwaysKey {
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::policy) enum CoercionSetting {
    Reject,
    AcceptAndLog,
    Repair,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::policy) enum UnknownFieldsKey {
    Refuse,
    Log,
}

/// A condition: `check` must hold, or `when` leads to `then`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct ConditionKeys {
    /// Condition (CEL). If it is false, the arguments are refused.
    pub(in crate::policy) check: Option<String>,
    /// With check: the field that the refusal names.
    pub(in crate::policy) field: Option<String>,
    /// With check: next step after the refusal, by the model or by the user.
    pub(in crate::policy) on_violation: Option<OnViolationKey>,
    /// With check: text for the user.
    pub(in crate::policy) user_facing_hint: Option<String>,
    /// If this condition holds (CEL) …
    pub(in crate::policy) when: Option<String>,
    /// … the call is refused, needs an approval, or has at least this risk level.
    pub(in crate::policy) then: Option<ThenSection>,
    /// Text for the model.
    pub(in crate::policy) message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::policy) enum OnViolationKey {
    SelfCorrect,
    AskUser,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(in crate::policy) enum ThenSection {
    #[serde(rename = "deny")]
    Deny,
    #[serde(rename = "ask")]
    Ask,
    #[serde(rename = "LOW")]
    Low,
    #[serde(rename = "MEDIUM")]
    Medium,
    #[serde(rename = "HIGH")]
    High,
}

/// An earlier success that a call requires.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Requires {
    /// Pattern of the tools, one of which has to have succeeded.
    pub(in crate::policy) tool: String,
    /// Arguments of the call, each with the place of the same value in the earlier one: a JSON pointer into its result
    /// (`/id`, `/items/*/id`), or one of its arguments (`args.order_id`).
    #[serde(default, rename = "match")]
    pub(in crate::policy) matching: BTreeMap<String, String>,
    /// Condition (CEL): `args.amount <= last('get_order').refundable`. A result from before the last write of the
    /// call's resource does not count; it has to be read again.
    pub(in crate::policy) condition: Option<String>,
    /// Text for the model if it is not met, with the placeholder `{values}` for the compared values.
    pub(in crate::policy) message: Option<String>,
    /// Text for the user if it is not met.
    pub(in crate::policy) user_facing_hint: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::policy) struct ResultMap {
    pub(in crate::policy) is_complete: Option<String>,
    pub(in crate::policy) total_matches: Option<String>,
    /// JSON pointer to the sign of a failure in the result, which is present and not false, 0, null or empty. For the
    /// loop rules.
    pub(in crate::policy) is_error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::policy) enum EmptyKey {
    NoMatches,
    Suspect,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::policy) struct ToolStorage {
    pub(in crate::policy) arguments: Option<StoredKey>,
    pub(in crate::policy) results: Option<StoredKey>,
}

/// full: all but secrets. raw: secrets too. redacted: as full, but only a digest of a text that is not JSON. hash: a
/// digest only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::policy) enum StoredKey {
    Raw,
    Full,
    Redacted,
    Hash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::policy) enum UnavailableKey {
    Deny,
    Allow,
}
