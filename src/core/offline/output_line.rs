//! Output line of a judged call; its key order is part of the contract.

use serde::Serialize;

use super::judge::CallAssessment;
use crate::{domain::finding::Finding, offline::trace::TraceRow};

#[derive(Debug, Serialize)]
/// Output line of `callgate replay`.
pub struct ReplayLine<'a> {
    trace: &'a str,
    seq: u64,
    call_id: &'a str,
    tool: &'a str,
    decision: &'static str,
    reason: Option<&'static str>,
    level: Option<&'static str>,
    count: Option<u32>,
    findings: Vec<FindingLine<'a>>,
    attempt: Option<u32>,
    fingerprint: String,
    idempotency_key: Option<&'a str>,
    retryable: Option<bool>,
    retry_after_ms: Option<u64>,
    p_success: Option<f64>,
}

#[derive(Debug, Serialize)]
struct FindingLine<'a> {
    rule: &'a str,
    decision: &'static str,
    level: Option<&'static str>,
    count: Option<u32>,
    message: &'a str,
}

impl<'a> ReplayLine<'a> {
    /// The line of a call and its assessment.
    #[must_use]
    pub fn new(row: &'a TraceRow, assessed: &'a CallAssessment) -> Self {
        let (verdict, winner) = (&assessed.verdict, assessed.winner());
        let (permit, advice) = (verdict.permit.as_ref(), assessed.advice);
        Self {
            trace: row.trace.as_str(),
            seq: row.seq,
            call_id: row.call_id.as_str(),
            tool: row.tool.as_str(),
            decision: assessed.decision.as_str(),
            reason: winner.map(|finding| finding.reason.as_str()),
            level: winner.and_then(|finding| finding.level).map(|level| level.as_str()),
            count: winner.and_then(|finding| finding.count),
            findings: verdict.findings.iter().map(FindingLine::new).collect(),
            attempt: permit.map(|permit| permit.attempt),
            fingerprint: verdict.fingerprint.to_hex(),
            idempotency_key: permit.map(|permit| permit.idempotency_key.as_str()),
            retryable: advice.map(|advice| advice.retryable),
            retry_after_ms: advice.map(|advice| advice.retry_after_ms),
            p_success: advice.map(|advice| advice.p_success),
        }
    }
}

impl<'a> FindingLine<'a> {
    fn new(finding: &'a Finding) -> Self {
        Self {
            rule: &finding.rule,
            decision: finding.decision.as_str(),
            level: finding.level.map(|level| level.as_str()),
            count: finding.count,
            message: &finding.message,
        }
    }
}
