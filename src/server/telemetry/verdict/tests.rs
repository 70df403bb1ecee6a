//! Tests of the log lines of decisions and reports: exact text, and no argument or result in them.

use std::collections::BTreeMap;

use super::*;
use crate::telemetry::testing::{
    self, LoggedEvent, allow, log_work, loop_broken, refused_verdict, settled_event, shadow_verdict,
};
use callgate_core::domain::{event::SettledEvent, failure::FailureKind, finding::Finding};

fn no_window() -> [(Fingerprint, Option<ResultDigest>); 0] {
    []
}

fn capture_verdict(verdict: &Verdict) -> LoggedEvent {
    let lines = log_work(|| log_verdict(verdict, &testing::proposal("charge_card"), 0, no_window()));
    let [line] = lines.as_slice() else { panic!("{} lines", lines.len()) };
    line.clone()
}

fn capture_report(settled: &SettledEvent) -> LoggedEvent {
    let lines = log_work(|| log_outcome(settled));
    let [line] = lines.as_slice() else { panic!("{} lines", lines.len()) };
    line.clone()
}

#[test]
fn a_decision_is_one_line_that_is_readable_alone() {
    let early = Finding::new("same_call", Decision::Wait, Reason::RetryTooEarly, "").retry_after(40_000);
    let warned = Finding::new("repeat", Decision::Allow, Reason::NoProgress, "").at_level(Level::Warning, 10);
    for (verdict, level, message) in [
        (allow(), LogLevel::DEBUG, "allow charge_card"),
        (
            refused_verdict(Decision::Deny, "same_call", Reason::OutcomeUnknown),
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
            shadow_verdict(loop_broken(Decision::Deny, Level::Critical, 20)),
            LogLevel::INFO,
            "allow charge_card, in shadow mode instead of deny: no_progress (repeat, critical at 20)",
        ),
        (
            Verdict { replayed: true, ..loop_broken(Decision::Deny, Level::Critical, 20) },
            LogLevel::DEBUG,
            "deny charge_card, replayed: no_progress (repeat, critical at 20)",
        ),
    ] {
        let line = capture_verdict(&verdict);
        assert_eq!((line.level, line.message()), (level, message));
        assert_eq!(line.target, names::TARGET_DECISION);
    }
}

#[test]
fn a_wait_that_is_told_again_and_again_is_said_now_and_then_and_counted_at_the_end() {
    let wait = refused_verdict(Decision::Wait, "same_call", Reason::RetryTooEarly);
    let lines = log_work(|| {
        (0..100).for_each(|before| log_verdict(&wait, &testing::proposal("charge_card"), before, no_window()));
        log_verdict(&allow(), &testing::proposal("charge_card"), 100, no_window());
    });
    assert_eq!(lines.len(), 101, "who listens at debug hears each");
    let said: Vec<_> = lines.iter().filter(|line| line.level <= LogLevel::INFO).collect();
    let text: Vec<&str> = said.iter().map(|line| line.message()).collect();
    assert_eq!(
        text,
        [
            "wait with charge_card: retry_too_early (same_call)",
            "wait with charge_card, 10 times: retry_too_early (same_call)",
            "wait with charge_card, 100 times: retry_too_early (same_call)",
            "allow charge_card, after 100 waits",
        ]
    );
    assert_eq!(said[3].fields[names::WAITS], "100");
    assert!(!said[0].fields.contains_key(names::WAITS));
}

#[test]
fn every_value_is_a_field_and_no_argument_is() {
    let line = capture_verdict(&allow());
    let expected = BTreeMap::from([
        ("message", "allow charge_card"),
        ("callgate.tenant", "1"),
        ("gen_ai.conversation.id", "s1"),
        ("gen_ai.tool.call.id", "c7"),
        ("gen_ai.tool.name", "charge_card"),
        ("callgate.decision", "ALLOW"),
        ("callgate.attempt", "2"),
        ("callgate.fingerprint", &line.fields["callgate.fingerprint"]),
        ("callgate.replayed", "false"),
        ("callgate.enforced", "true"),
        ("callgate.policy", ""),
        ("callgate.seq", "41"),
    ]);
    assert_eq!(line.fields.iter().map(|(name, value)| (*name, value.as_str())).collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(line.fields["callgate.fingerprint"], allow().fingerprint.to_hex()[..16]);

    let all = [
        capture_verdict(&shadow_verdict(loop_broken(Decision::Deny, Level::Critical, 20))),
        capture_verdict(&refused_verdict(Decision::Wait, "same_call", Reason::RetryTooEarly)),
        capture_report(&settled_event(OutcomeStatus::Error, Some(FailureKind::Timeout), Some((true, 1_500)))),
    ];
    for (name, value) in all.iter().flat_map(|line| &line.fields) {
        let is_listed = [names::FIELDS, names::CONVENTIONS].concat().contains(name);
        assert!(*name == "message" || is_listed, "{name} is not in names.rs");
        assert!(!value.contains(testing::SECRET), "{name} says {value}");
    }
}

#[test]
fn a_broken_loop_is_said_with_its_evidence_and_with_no_more_than_that() {
    let (fingerprint, digest) = (allow().fingerprint, ResultDigest::of_success("same"));
    let endless = std::iter::once((fingerprint, None)).chain(std::iter::repeat((fingerprint, Some(digest))));
    let broken = loop_broken(Decision::Deny, Level::Critical, 20);
    let lines = log_work(|| log_verdict(&broken, &testing::proposal("charge_card"), 0, endless));
    let window = &lines[0].fields["callgate.loop.window"];
    let calls: Vec<&str> = window.split(' ').collect();
    let (short, result) = (&fingerprint.to_hex()[..16], &digest.to_hex()[..16]);
    assert_eq!(calls.len(), WINDOW_MAX);
    assert_eq!(calls[..2], [format!("{short}:-"), format!("{short}:{result}")]);

    let unread = std::iter::from_fn(|| panic!("the window of a call that is let through is not read"));
    log_work(|| log_verdict(&allow(), &testing::proposal("charge_card"), 0, unread));
}

#[test]
fn a_report_is_one_line_that_is_readable_alone() {
    for (settled, level, message) in [
        (settled_event(OutcomeStatus::Success, None, None), LogLevel::DEBUG, "success of c7"),
        (
            settled_event(OutcomeStatus::Error, Some(FailureKind::RateLimited), Some((true, 40_000))),
            LogLevel::INFO,
            "error of c7: rate_limited, retry after 40 s",
        ),
        (
            settled_event(OutcomeStatus::Unknown, Some(FailureKind::Timeout), Some((false, 0))),
            LogLevel::INFO,
            "unknown of c7: timeout, do not retry",
        ),
        (
            SettledEvent { by_lease: true, ..settled_event(OutcomeStatus::Unknown, None, None) },
            LogLevel::INFO,
            "unknown of c7: its lease expired",
        ),
        (
            SettledEvent { double_effect: true, ..settled_event(OutcomeStatus::Success, None, None) },
            LogLevel::WARN,
            "success of c7: another attempt of the same execution has succeeded too",
        ),
    ] {
        let line = capture_report(&settled);
        assert_eq!((line.level, line.message()), (level, message));
        assert_eq!(line.target, names::TARGET_RECORD);
    }
    let line = capture_report(&settled_event(OutcomeStatus::Error, Some(FailureKind::Auth), Some((false, 0))));
    assert_eq!(line.fields["callgate.retryable"], "false");
    assert!(!line.fields.contains_key("callgate.retry_after_ms"), "there is no wait before no retry");
}
