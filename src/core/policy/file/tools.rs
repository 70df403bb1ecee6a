//! Types of the policy file for one tool.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::PolicyMode;
use crate::rules::{levels::DetectorLevels, side_effects::SecondChange};

/// What is known about one tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::policy) struct ToolSection {
    /// How dangerous it is, where no tier names it: LOW passes, MEDIUM needs a grant, HIGH a person.
    pub(in crate::policy) risk_level: Option<RiskKey>,
    /// What it does to its resource. One that names a resource and no effect writes it.
    pub(in crate::policy) effect: Option<EffectKey>,
    /// What it touches, with holes for arguments: `order/{order_id}`.
    pub(in crate::policy) side_effect_resource: Option<String>,
    /// The argument that holds a line of a shell: effect and resource (`file/PATH`) are read from it.
    pub(in crate::policy) command_line: Option<String>,
    /// The argument that holds the folder, from the root, that the line runs in.
    pub(in crate::policy) working_directory: Option<String>,
    /// Other effects for some arguments; the first case that holds decides.
    pub(in crate::policy) effects: Vec<CaseKeys>,
    /// How old an answer of a read may be that stands in for another, in milliseconds; 0: none does; always: what it
    /// reads never changes. By default 60000, or deduplication.window_ms where that is set.
    pub(in crate::policy) fresh_ms: Option<FreshKey>,
    /// What it reads is changed by its own call tree alone: its answer stands in until a write of it.
    pub(in crate::policy) private_to_call_tree: bool,
    /// A write whose repetition harms: a payment, a message.
    pub(in crate::policy) once: bool,
    /// A write whose repetition is harmless.
    pub(in crate::policy) idempotent: bool,
    /// A write whose provider honours the idempotency key: after a timeout it may be sent again with the key, where the
    /// execution received that (`key_sent`).
    pub(in crate::policy) key_honored: bool,
    /// A write whose identical repetition is meant: scroll, next page, append, take from a queue.
    pub(in crate::policy) repeatable: bool,
    /// A way out (`final_answer`), never blocked nor charged.
    pub(in crate::policy) terminal: bool,
    /// A second change of its resource in a call tree.
    pub(in crate::policy) second_change: Option<SecondChange>,
    /// The fields by which the same call is known again; all of them by default. `customer.id` names a nested one.
    pub(in crate::policy) canonical_fields: Vec<String>,
    /// One form for values that mean the same, by field: to_int, to_number, to_bool, to_upper, to_lower, trim,
    /// collapse_whitespace, e164, iso_date, iso_datetime_utc, email, url, sort, path.
    pub(in crate::policy) normalizers: BTreeMap<String, String>,
    /// JSON Schema (2020-12) of its arguments.
    pub(in crate::policy) schema: Option<Value>,
    /// What becomes of a value of another type that can be read as the right one.
    pub(in crate::policy) coercion: Option<CoercionSetting>,
    /// What becomes of fields that the schema does not know.
    pub(in crate::policy) unknown_fields: Option<UnknownFieldsKey>,
    /// Conditions over the arguments, in CEL.
    pub(in crate::policy) conditions: Vec<ConditionKeys>,
    /// What must have happened first.
    pub(in crate::policy) requires: Vec<Requires>,
    /// How long a permitted call may run before its outcome counts as unknown: 600000 by default.
    pub(in crate::policy) lease_ms: Option<u64>,
    /// JSON pointers into the result (`*` for any element) of what changes without meaning anything.
    pub(in crate::policy) volatile: Vec<String>,
    /// JSON pointers to is_complete and total_matches in the result.
    pub(in crate::policy) result_map: ResultMap,
    /// What a bare empty result says.
    pub(in crate::policy) empty_means: Option<EmptyKey>,
    /// What a call costs when the caller gives no estimate, in US dollars.
    pub(in crate::policy) cost_usd: Option<f64>,
    /// Are its failures worth a retry, before there is evidence?
    pub(in crate::policy) retryable: Option<bool>,
    /// What to call instead when it is refused.
    pub(in crate::policy) suggested_next: Vec<String>,
    /// Levels of loop detectors for this tool, by detector.
    pub(in crate::policy) loops: BTreeMap<String, DetectorLevels>,
    /// How much of its arguments and results is stored.
    pub(in crate::policy) storage: ToolStorage,
    /// What becomes of its calls while the database is away: deny by default; only a read may be allowed.
    pub(in crate::policy) on_store_unavailable: Option<UnavailableKey>,
    /// shadow: its refusals are only recorded.
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
    /// … it does this …
    pub(in crate::policy) effect: EffectKey,
    /// … to this.
    pub(in crate::policy) side_effect_resource: Option<String>,
    /// For a read: how old its answer may be, as for the tool.
    pub(in crate::policy) fresh_ms: Option<FreshKey>,
}

/// How old an answer may be.
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
    /// What must hold; else the arguments are refused.
    pub(in crate::policy) check: Option<String>,
    /// With check: the field that is named when it does not hold.
    pub(in crate::policy) field: Option<String>,
    /// With check: who can mend it.
    pub(in crate::policy) on_violation: Option<OnViolationKey>,
    /// With check: what the user should be asked or told.
    pub(in crate::policy) user_facing_hint: Option<String>,
    /// When it holds …
    pub(in crate::policy) when: Option<String>,
    /// … the call is refused, a person is asked, or it counts as at least that dangerous.
    pub(in crate::policy) then: Option<ThenSection>,
    /// What is said to the model.
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

/// An earlier success that a call builds on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Requires {
    /// Of one of these tools, as a pattern.
    pub(in crate::policy) tool: String,
    /// Arguments of the call, and where the earlier one has the same value: a JSON pointer into its result (`/id`,
    /// `/items/*/id`), or one of its arguments (`args.order_id`).
    #[serde(default, rename = "match")]
    pub(in crate::policy) matching: BTreeMap<String, String>,
    /// What must hold then (CEL): `args.amount <= last('get_order').refundable`. A result from before the last write of
    /// the thing that the call names does not count: it has to be read again.
    pub(in crate::policy) condition: Option<String>,
    /// What the model is told when it is not met; `{values}` stands for the values that were compared or looked for.
    pub(in crate::policy) message: Option<String>,
    /// What the user should be asked or told then.
    pub(in crate::policy) user_facing_hint: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::policy) struct ResultMap {
    pub(in crate::policy) is_complete: Option<String>,
    pub(in crate::policy) total_matches: Option<String>,
    /// Where the result says that it failed: there and not false, 0, null or empty. For the loop rules.
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

/// full: all but secrets; raw: secrets too; redacted: as full, but of a text that is no JSON a digest only; hash: a
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
