//! Test support: verdicts to report on, and a recorder of log lines.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex},
};

use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use tracing::{Level as LogLevel, field::Visit};
use tracing_subscriber::{Layer, Registry, fmt::MakeWriter, layer::Context, prelude::*};

use callgate_core::domain::{
    call::{Permit, Proposal, Request},
    effect::{Effect, Freshness},
    event::SettledEvent,
    failure::FailureKind,
    finding::{Decision, Finding, Level},
    fingerprint::{ArgsDigest, Fingerprint},
    ids::{CallId, DEFAULT_TENANT, SessionId, ToolName},
    json,
    outcome::{Advice, Basis, Confidence, OutcomeStatus, Repeat},
    reason::Reason,
    redaction::Secrets,
    time::Timestamp,
    verdict::Verdict,
};

/// An argument that must never be logged.
pub(super) const SECRET: &str = "4929-1234-5678-9012";

pub(super) fn proposal(tool: &str) -> Proposal {
    let tool = ToolName::parse("tool", tool).expect("a name");
    let canonical = format!(r#"{{"card":"{SECRET}"}}"#);
    Proposal {
        fingerprint: Fingerprint::of(&tool, &canonical),
        args_digest: ArgsDigest::of(&tool, &canonical),
        request: Request {
            justification: Some(SECRET.to_owned()),
            ..Request::new(
                DEFAULT_TENANT,
                SessionId::parse("session", "s1").expect("a name"),
                CallId::parse("call_id", "c7").expect("a name"),
                tool,
                json::parse(&canonical).expect("JSON"),
            )
        },
        stored: canonical.as_str().into(),
        secrets: Secrets::default(),
        canonical: canonical.into(),
        effect: Effect::default(),
        fresh: Freshness::default(),
        witness: None,
        cost_micros: 0,
        spec: std::sync::Arc::default(),
        shape: std::sync::Arc::default(),
        declared: false,
        answer_bytes_max: 16_384,
        caller_waits: true,
        violations: Vec::new(),
        coerced: Vec::new(),
        unknown_fields: Vec::new(),
        repaired: false,
    }
}

pub(super) fn verdict(decision: Decision, findings: Vec<Finding>) -> Verdict {
    Verdict {
        decision,
        would: decision,
        findings,
        permit: None,
        approval: None,
        policy: std::sync::Arc::default(),
        left: Vec::new(),
        tools_disabled: false,
        replayed: false,
        fingerprint: proposal("charge_card").fingerprint,
        seq: 41,
        at: Timestamp::from_millis(0),
    }
}

pub(super) fn allow() -> Verdict {
    let permit = Permit {
        attempt: 2,
        occurrence: 41,
        idempotency_key: SECRET.to_owned(),
        at: Timestamp::from_millis(0),
        seq: 41,
        lease_until: Timestamp::from_millis(60_000),
        reserved_micros: 0,
        ledger_revision: 0,
    };
    Verdict { permit: Some(permit), ..verdict(Decision::Allow, Vec::new()) }
}

/// Findings' messages may quote the model's text: they are for the model.
pub(super) fn refused_verdict(decision: Decision, rule: &'static str, reason: Reason) -> Verdict {
    verdict(decision, vec![Finding::new(rule, decision, reason, SECRET)])
}

pub(super) fn loop_broken(decision: Decision, level: Level, count: u32) -> Verdict {
    let finding = Finding::new("repeat", decision, Reason::NoProgress, SECRET).at_level(level, count);
    verdict(decision, vec![finding])
}

pub(super) fn shadow_verdict(verdict: Verdict) -> Verdict {
    let findings = verdict.findings.into_iter().map(|finding| Finding { enforced: false, ..finding }).collect();
    Verdict { decision: Decision::Allow, findings, ..verdict }
}

/// A report; `retry` is the advice: a retry or none, and its delay in milliseconds.
pub(super) fn settled_event(
    status: OutcomeStatus,
    failure: Option<FailureKind>,
    retry: Option<(bool, u64)>,
) -> SettledEvent {
    SettledEvent {
        kept: false,
        seq: 42,
        at: Timestamp::from_millis(0),
        session: SessionId::parse("session", "s1").expect("a name"),
        call_id: CallId::parse("call_id", "c7").expect("a name"),
        permit_seq: 41,
        by_lease: false,
        status,
        failure,
        error_signature: Some(SECRET.to_owned()),
        digest: None,
        witness: None,
        marks: None,
        news: false,
        progress: false,
        circumstances: None,
        follow_up_ok: None,
        advice: retry.map(|(retryable, retry_after_ms)| Advice {
            retryable,
            retry_after_ms,
            max_retries_remaining: 1,
            p_success: 0.5,
            interval: (0.1, 0.9),
            confidence: Confidence::Low,
            basis: Basis::Prior,
            trials: 0.0,
            as_of: None,
            guard: None,
            probe: false,
            repeat: if retryable { Repeat::ByClient } else { Repeat::Never },
        }),
        lease_until: None,
        ledger_revision: 0,
        usage: Default::default(),
        model: None,
        duration_ms: None,
        is_complete: None,
        total_matches: None,
        progress_note: Some(SECRET.to_owned()),
        result: Some(SECRET.to_owned()),
        result_bytes: None,
        whole: None,
        gist: None,
        error_line: None,
        effect_open: false,
        key_sent: false,
        inferred: false,
        double_effect: false,
        error_message: Some(SECRET.to_owned()),
    }
}

/// One logged event.
#[derive(Debug, Clone)]
pub(super) struct LoggedEvent {
    pub(super) level: LogLevel,
    pub(super) target: String,
    pub(super) fields: BTreeMap<&'static str, String>,
}

impl LoggedEvent {
    pub(super) fn message(&self) -> &str {
        &self.fields["message"]
    }
}

impl Visit for LoggedEvent {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// Hears every event.
#[derive(Debug, Clone, Default)]
pub(super) struct LogCapture(Arc<Mutex<Vec<LoggedEvent>>>);

impl LogCapture {
    /// Log lines of callgate itself.
    pub(super) fn log_lines(&self) -> Vec<LoggedEvent> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.target.starts_with("callgate")).cloned().collect()
    }
}

impl<S: tracing::Subscriber> Layer<S> for LogCapture {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        let mut line = LoggedEvent { level: *meta.level(), target: meta.target().to_owned(), fields: BTreeMap::new() };
        event.record(&mut line);
        self.0.lock().unwrap().push(line);
    }
}

/// The lines that `work` logs on this thread.
pub(super) fn log_work(work: impl FnOnce()) -> Vec<LoggedEvent> {
    let ears = LogCapture::default();
    tracing::subscriber::with_default(Registry::default().with(ears.clone()), work);
    ears.log_lines()
}

/// Keeps the spans that are exported.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans(pub(super) Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Spans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// Keeps the written lines.
#[derive(Debug, Clone, Default)]
pub(super) struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogBuffer {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
