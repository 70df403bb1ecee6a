//! Stored findings: JSON in the `findings` column.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    decode::{LoadedRow, corrupt},
    sealed::{Opener, words_of},
};
use crate::sealing::is_sealed;
use callgate_core::domain::{
    finding::{Decision, Finding, Level},
    reason::Reason,
    time::Timestamp,
    tool::RiskLevel,
    violation::{OnViolation, SelfCorrection, Violation},
};

/// A finding in the `findings` column.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredFinding {
    rule: String,
    decision: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    count: Option<u32>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    next_action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    for_people: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reuse: Option<(String, String, i64)>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    violations: Vec<StoredViolation>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    raised_risk: Option<String>,
    enforced: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredViolation {
    field: String,
    message: String,
    keyword: String,
    #[serde(default)]
    ask_user: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    user_facing_hint: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    hopeless: bool,
}

impl From<&Violation> for StoredViolation {
    fn from(violation: &Violation) -> Self {
        Self {
            field: violation.field.clone(),
            message: violation.message.clone(),
            keyword: violation.keyword.clone(),
            ask_user: violation.on_violation == OnViolation::AskUser,
            user_facing_hint: violation.user_facing_hint.clone(),
            hopeless: violation.is_hopeless,
        }
    }
}

impl From<StoredViolation> for Violation {
    fn from(stored: StoredViolation) -> Self {
        let on_violation = if stored.ask_user { OnViolation::AskUser } else { OnViolation::SelfCorrect };
        let StoredViolation { field, message, keyword, user_facing_hint, .. } = stored;
        Self { field, message, keyword, on_violation, user_facing_hint, is_hopeless: stored.hopeless }
    }
}

impl From<&Finding> for StoredFinding {
    fn from(finding: &Finding) -> Self {
        Self {
            rule: finding.rule.to_string(),
            decision: finding.decision.as_str().to_owned(),
            reason: finding.reason.as_str().to_owned(),
            level: finding.level.map(|level| level.as_str().to_owned()),
            count: finding.count,
            message: finding.message.clone(),
            next_action: finding.next_action.clone(),
            for_people: finding.for_people.clone(),
            retry_after_ms: finding.retry_after_ms,
            reuse: finding
                .reuse
                .as_ref()
                .map(|call| (call.session.to_string(), call.call_id.to_string(), call.at.as_millis())),
            violations: finding.violations.iter().map(StoredViolation::from).collect(),
            raised_risk: finding.raised_risk.map(|risk| risk.as_str().to_owned()),
            enforced: finding.enforced,
        }
    }
}

impl StoredFinding {
    /// The finding; none for a row of a later version with an unknown reason.
    fn restore(self) -> Option<Finding> {
        use callgate_core::domain::{finding::CallRef, ids};
        let reuse = self.reuse.and_then(|(session, call_id, at)| {
            let session = ids::SessionId::parse("session_id", &session).ok()?;
            let call_id = ids::CallId::parse("call_id", &call_id).ok()?;
            Some(CallRef { session, call_id, at: Timestamp::from_millis(at) })
        });
        Some(Finding {
            rule: self.rule.into(),
            decision: Decision::from_name(&self.decision)?,
            reason: Reason::from_name(&self.reason)?,
            level: self.level.and_then(|name| Level::from_name(&name)),
            count: self.count,
            message: self.message,
            next_action: self.next_action,
            for_people: self.for_people,
            retry_after_ms: self.retry_after_ms,
            reuse,
            violations: self.violations.into_iter().map(Violation::from).collect(),
            raised_risk: self.raised_risk.and_then(|name| RiskLevel::from_name(&name)),
            enforced: self.enforced,
        })
    }
}

/// The findings of a `findings` column.
pub(super) fn read(column: Option<String>, opener: &Opener, session: &str, seq: u64) -> LoadedRow<Vec<Finding>> {
    let Some(text) = column else { return Ok(Vec::new()) };
    let stored: Vec<StoredFinding> = serde_json::from_str(&text).map_err(|error| corrupt(&error.to_string()))?;
    let stored = stored.into_iter().map(StoredFinding::restore).enumerate();
    stored.filter_map(|(at, finding)| Some(opener.finding(session, seq, at, finding?))).collect()
}

/// A stored finding, decrypted; none for a plain one.
pub(super) fn decrypt_finding(
    json: Value,
    at: usize,
    opener: &Opener,
    session: &str,
    seq: u64,
) -> LoadedRow<Option<Value>> {
    let unreadable = |error: serde_json::Error| corrupt(&error.to_string());
    if !json.get("message").and_then(Value::as_str).is_some_and(is_sealed) {
        return Ok(None);
    }
    let stored: StoredFinding = serde_json::from_value(json).map_err(unreadable)?;
    let Some(finding) = stored.restore() else { return Ok(None) };
    let opened = opener.finding(session, seq, at, finding)?;
    serde_json::to_value(StoredFinding::from(&opened)).map(Some).map_err(unreadable)
}

/// A stored finding split into its JSON without texts, and the texts; none for a later build's.
pub(super) fn split_texts(json: Value) -> LoadedRow<Option<(Value, String)>> {
    let unreadable = |error: serde_json::Error| corrupt(&error.to_string());
    let stored: StoredFinding = serde_json::from_value(json).map_err(unreadable)?;
    let Some(mut finding) = stored.restore() else { return Ok(None) };
    let Some(words) = words_of(&mut finding) else { return Ok(None) };
    Ok(Some((serde_json::to_value(StoredFinding::from(&finding)).map_err(unreadable)?, words)))
}

/// The column `call.self_corrections`; null when empty.
pub(super) fn self_corrections_json(of: &[SelfCorrection]) -> Option<String> {
    let json = |one: &SelfCorrection| serde_json::json!({"field": one.field, "rule": one.rule, "ok": one.ok});
    (!of.is_empty()).then(|| serde_json::Value::from_iter(of.iter().map(json)).to_string())
}
