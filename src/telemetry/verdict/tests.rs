//! What is said, word for word; and that nothing is said which must not be.

use std::collections::BTreeMap;

use opentelemetry::{trace::SpanKind, trace::TracerProvider as _};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use tracing_subscriber::{Registry, prelude::*};

use super::*;
use crate::{
    domain::{
        event::Settled,
        failure::FailureKind,
        finding::Finding,
        ids::{CallId, SessionId},
        outcome::{Advice, Basis, Confidence},
        time::Timestamp,
    },
    telemetry::{
        self,
        testing::{self, Line, Spans, allow, heard, loop_broken, refused, shadowed},
    },
};

fn no_window() -> [(Fingerprint, Option<ResultDigest>); 0] {
    []
}

fn said(verdict: &Verdict) -> Line {
    let lines = heard(|| evaluated(verdict, &testing::proposal("charge_card"), no_window()));
    let [line] = lines.as_slice() else {
        panic!("{} lines", lines.len())
    };
    line.clone()
}

fn settled(status: OutcomeStatus, failure: Option<FailureKind>, retry: Option<(bool, u64)>) -> Settled {
    Settled {
        seq: 42,
        at: Timestamp::from_millis(0),
        session: SessionId::parse("session", "s1").expect("a name"),
        call_id: CallId::parse("call_id", "c7").expect("a name"),
        permit_seq: 41,
        by_lease: false,
        status,
        failure,
        error_signature: Some(testing::SECRET.to_owned()),
        digest: None,
        progress: false,
        advice: retry.map(|(retryable, retry_after_ms)| Advice {
            retryable,
            retry_after_ms,
            max_retries_remaining: 1,
            p_success: 0.5,
            interval: (0.1, 0.9),
            confidence: Confidence::Low,
            basis: Basis::Prior,
            guard: None,
        }),
        lease_until: None,
        ledger_revision: 0,
        usage: Default::default(),
        duration_ms: None,
        is_complete: None,
        total_matches: None,
        progress_note: Some(testing::SECRET.to_owned()),
        result: Some(testing::SECRET.to_owned()),
        result_bytes: None,
        error_message: Some(testing::SECRET.to_owned()),
    }
}

fn told(settled: &Settled) -> Line {
    let lines = heard(|| recorded(settled));
    let [line] = lines.as_slice() else {
        panic!("{} lines", lines.len())
    };
    line.clone()
}

#[test]
fn a_decision_is_one_line_that_is_readable_alone() {
    let early = Finding::new("same_call", Decision::Wait, Reason::RetryTooEarly, "").retry_after(40_000);
    let warned = Finding::new("repeat", Decision::Allow, Reason::NoProgress, "").at_level(Level::Warning, 10);
    for (verdict, level, message) in [
        (allow(), LogLevel::DEBUG, "allow charge_card"),
        (
            refused(Decision::Deny, "same_call", Reason::OutcomeUnknown),
            LogLevel::INFO,
            "deny charge_card: outcome_unknown (same_call)",
        ),
        (
            testing::verdict(Decision::Wait, vec![early]),
            LogLevel::INFO,
            "wait with charge_card: retry_too_early (same_call), again in 40 s",
        ),
        (
            testing::verdict(Decision::Allow, vec![warned]),
            LogLevel::INFO,
            "allow charge_card: no_progress (repeat, warning at 10)",
        ),
        (
            loop_broken(Decision::Deny, Level::Critical, 20),
            LogLevel::WARN,
            "deny charge_card: no_progress (repeat, critical at 20)",
        ),
        (
            loop_broken(Decision::Stop, Level::Break, 30),
            LogLevel::WARN,
            "stop at charge_card: no_progress (repeat, break at 30)",
        ),
        (
            shadowed(loop_broken(Decision::Deny, Level::Critical, 20)),
            LogLevel::INFO,
            "allow charge_card, in shadow mode instead of deny: no_progress (repeat, critical at 20)",
        ),
        (
            Verdict {
                replayed: true,
                ..loop_broken(Decision::Deny, Level::Critical, 20)
            },
            LogLevel::DEBUG,
            "deny charge_card, as answered before: no_progress (repeat, critical at 20)",
        ),
    ] {
        let line = said(&verdict);
        assert_eq!((line.level, line.message()), (level, message));
        assert_eq!(line.target, names::TARGET_DECISION);
    }
}

#[test]
fn every_value_is_a_field_and_no_argument_is() {
    let line = said(&allow());
    let expected = BTreeMap::from([
        ("message", "allow charge_card"),
        ("callgate.tenant", "1"),
        ("callgate.session", "s1"),
        ("callgate.call_id", "c7"),
        ("callgate.tool", "charge_card"),
        ("callgate.decision", "ALLOW"),
        ("callgate.attempt", "2"),
        ("callgate.fingerprint", &line.fields["callgate.fingerprint"]),
        ("callgate.replayed", "false"),
        ("callgate.enforced", "true"),
        ("callgate.seq", "41"),
    ]);
    assert_eq!(
        line.fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect::<BTreeMap<_, _>>(),
        expected
    );
    assert_eq!(line.fields["callgate.fingerprint"], allow().fingerprint.to_hex()[..16]);

    let all = [
        said(&shadowed(loop_broken(Decision::Deny, Level::Critical, 20))),
        said(&refused(Decision::Wait, "same_call", Reason::RetryTooEarly)),
        told(&settled(
            OutcomeStatus::Error,
            Some(FailureKind::Timeout),
            Some((true, 1_500)),
        )),
    ];
    for (name, value) in all.iter().flat_map(|line| &line.fields) {
        assert!(
            *name == "message" || names::FIELDS.contains(name),
            "{name} is not in names.rs"
        );
        assert!(!value.contains(testing::SECRET), "{name} says {value}");
    }
}

#[test]
fn a_broken_loop_is_said_with_its_evidence_and_with_no_more_than_that() {
    let (fingerprint, digest) = (allow().fingerprint, ResultDigest::of_success("same"));
    let endless = std::iter::once((fingerprint, None)).chain(std::iter::repeat((fingerprint, Some(digest))));
    let broken = loop_broken(Decision::Deny, Level::Critical, 20);
    let lines = heard(|| evaluated(&broken, &testing::proposal("charge_card"), endless));
    let window = &lines[0].fields["callgate.loop.window"];
    let calls: Vec<&str> = window.split(' ').collect();
    let (short, result) = (&fingerprint.to_hex()[..16], &digest.to_hex()[..16]);
    assert_eq!(calls.len(), WINDOW_MAX);
    assert_eq!(calls[..2], [format!("{short}:-"), format!("{short}:{result}")]);

    let unread = std::iter::from_fn(|| panic!("the window of a call that is let through is not read"));
    heard(|| evaluated(&allow(), &testing::proposal("charge_card"), unread));
}

#[test]
fn a_report_is_one_line_that_is_readable_alone() {
    for (settled, level, message) in [
        (
            settled(OutcomeStatus::Success, None, None),
            LogLevel::DEBUG,
            "success of c7",
        ),
        (
            settled(
                OutcomeStatus::Error,
                Some(FailureKind::RateLimited),
                Some((true, 40_000)),
            ),
            LogLevel::INFO,
            "error of c7: rate_limited, retry in 40 s",
        ),
        (
            settled(OutcomeStatus::Unknown, Some(FailureKind::Timeout), Some((false, 0))),
            LogLevel::INFO,
            "unknown of c7: timeout, no retry",
        ),
    ] {
        let line = told(&settled);
        assert_eq!((line.level, line.message()), (level, message));
        assert_eq!(line.target, names::TARGET_RECORD);
    }
    let line = told(&settled(
        OutcomeStatus::Error,
        Some(FailureKind::Auth),
        Some((false, 0)),
    ));
    assert_eq!(line.fields["callgate.retryable"], "false");
    assert!(
        !line.fields.contains_key("callgate.retry_after_ms"),
        "there is no wait before no retry"
    );
}

/// The spans and lines of `work`, as a collector and a log get them.
fn traced(work: impl FnOnce()) -> (Vec<SpanData>, Vec<Line>) {
    let spans = Spans::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let layer = telemetry::setup::spans_to(provider.tracer(names::SERVICE));
    let ears = testing::Ears::default();
    tracing::subscriber::with_default(Registry::default().with(layer).with(ears.clone()), work);
    let exported = spans.0.lock().unwrap().clone();
    (exported, ears.lines())
}

fn attributes(span: &SpanData) -> BTreeMap<String, String> {
    span.attributes
        .iter()
        .map(|attribute| (attribute.key.to_string(), attribute.value.to_string()))
        .collect()
}

fn headers() -> http::HeaderMap {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    http::HeaderMap::from_iter([(
        http::HeaderName::from_static("traceparent"),
        traceparent.parse().expect("a header"),
    )])
}

#[test]
fn the_span_of_a_question_hangs_below_the_callers_and_carries_the_verdict() {
    let verdict = loop_broken(Decision::Deny, Level::Critical, 20);
    let (spans, lines) = traced(|| {
        let span = telemetry::evaluate_span(&headers());
        span.in_scope(|| evaluated(&verdict, &testing::proposal("charge_card"), no_window()));
    });
    let [span] = spans.as_slice() else {
        panic!("{} spans", spans.len())
    };
    assert_eq!(
        (&*span.name, &span.span_kind),
        (names::SPAN_EVALUATE, &SpanKind::Server)
    );
    assert_eq!(
        span.span_context.trace_id().to_string(),
        "4bf92f3577b34da6a3ce929d0e0e4736"
    );
    assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
    assert_eq!(lines[0].fields["callgate.trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");

    let found = attributes(span);
    assert_eq!(found.len(), span.attributes.len(), "an attribute stands twice");
    for (name, value) in [
        ("callgate.session", "s1"),
        ("callgate.tool", "charge_card"),
        ("callgate.decision", "DENY"),
        ("callgate.rule", "repeat"),
        ("callgate.reason", "no_progress"),
        ("callgate.level", "critical"),
        ("callgate.count", "20"),
        ("callgate.enforced", "true"),
    ] {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }
    for (name, value) in &found {
        assert!(names::FIELDS.contains(&&**name), "{name} is not in names.rs");
        assert!(!value.contains(testing::SECRET), "{name} says {value}");
    }
}

#[test]
fn each_verdict_of_a_batch_has_its_own_span() {
    let (spans, _) = traced(|| {
        telemetry::batch_span(&headers()).in_scope(|| {
            evaluated(&allow(), &testing::proposal("charge_card"), no_window());
            evaluated(&allow(), &testing::proposal("send_mail"), no_window());
        });
    });
    let [one, other, batch] = spans.as_slice() else {
        panic!("{} spans", spans.len())
    };
    assert_eq!(batch.name, names::SPAN_BATCH);
    assert_eq!(attributes(one)["callgate.tool"], "charge_card");
    assert_eq!(attributes(other)["callgate.tool"], "send_mail");
    for span in [one, other] {
        assert_eq!(
            (&*span.name, span.parent_span_id),
            (names::SPAN_EVALUATE, batch.span_context.span_id())
        );
    }
}

#[test]
fn the_span_of_a_report_carries_the_outcome() {
    let (spans, _) = traced(|| {
        let settled = settled(
            OutcomeStatus::Error,
            Some(FailureKind::RateLimited),
            Some((true, 40_000)),
        );
        telemetry::record_span(&http::HeaderMap::new()).in_scope(|| recorded(&settled));
    });
    let [span] = spans.as_slice() else {
        panic!("{} spans", spans.len())
    };
    assert_eq!(span.name, names::SPAN_RECORD);
    let found = attributes(span);
    assert_eq!(found["callgate.outcome"], "error");
    assert_eq!(found["callgate.failure_kind"], "rate_limited");
    assert_eq!(found["callgate.retry_after_ms"], "40000");
    assert!(found.keys().all(|name| names::FIELDS.contains(&&**name)), "{found:?}");
}
