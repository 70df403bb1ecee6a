#![expect(clippy::disallowed_methods, reason = "tests read files")]

use std::io::{BufRead as _, BufReader};

use flate2::read::GzDecoder;
use serde_json::Value;

use super::*;
use crate::domain::profile::{FollowUp, ToolState};

fn tool(name: &str) -> ToolName {
    ToolName::parse("tool", name).expect("a good name")
}

fn state(attempt: &Value, tool: &Value) -> RetryState {
    let tool = ToolState::ALL[tool.as_u64().expect("a state") as usize];
    RetryState { attempt: attempt.as_u64().expect("an attempt") as u32, tool }
}

fn parse_kind(name: &Value) -> FailureKind {
    FailureKind::from_name(name.as_str().expect("a kind")).expect("a known kind")
}

fn at(seconds: &Value) -> Timestamp {
    Timestamp::from_millis((seconds.as_f64().expect("seconds") * 1_000.0).round() as i64)
}

/// A retry in that wait bucket, learned with the expectation of that time.
fn trial(estimate: &Estimate, line: &[Value]) -> Trial {
    let (tool, failure, state, at) =
        (tool(line[2].as_str().expect("a tool")), parse_kind(&line[3]), state(&line[5], &line[6]), at(&line[1]));
    let wait = line[4].as_u64().expect("a bucket") as usize;
    let odds = estimate.view((&tool, failure), prior(failure), false, at).odds(state);
    let follow_up = FollowUp {
        of: 1,
        kind: FollowUpKind::Same,
        decided_by: None,
        failure,
        state,
        waited_ms: WAITS_MS[wait],
        p_predicted: odds.p[wait],
        retryable_said: true,
        probe: false,
        p_slow: odds.slow[wait],
        p: odds.p[wait],
        features: [0.0; crate::domain::profile::FEATURES],
    };
    Trial { tool, follow_up, ok: line[7] == 1, at }
}

/// The stream was made by a slow and exact reference of docs/learning.md#the-estimate: 7,881 outcomes and 1,313
/// queries.
#[test]
fn the_estimate_agrees_with_the_reference_on_the_golden_stream() {
    let file = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/learning/golden.jsonl.gz"))
        .expect("the golden stream");
    let mut estimate = Estimate::default();
    let (mut queries, mut outcomes, mut worst) = (0, 0, 0.0_f64);
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let line: Vec<Value> = serde_json::from_str(&line.expect("a line")).expect("JSON");
        if line[0] == "outcome" {
            let trial = trial(&estimate, &line);
            estimate.learn(&trial);
            outcomes += 1;
            continue;
        }
        queries += 1;
        let (tool, kind) = (tool(line[2].as_str().expect("a tool")), parse_kind(&line[3]));
        let odds = estimate.view((&tool, kind), prior(kind), false, at(&line[1])).odds(state(&line[4], &line[5]));
        let expected = |list: &Value| -> Vec<f64> {
            list.as_array().expect("a list").iter().map(|p| p.as_f64().expect("a chance")).collect()
        };
        for (mine, theirs) in odds.slow.iter().chain(&odds.p).zip(expected(&line[6]).iter().chain(&expected(&line[7])))
        {
            worst = worst.max((mine - theirs).abs());
        }
        let after = line[10].as_f64().expect("seconds") * 1_000.0;
        let wait = WAITS_MS.iter().position(|wait| *wait as f64 == after).expect("a wait");
        assert!((odds.trials[wait] - line[8].as_f64().expect("trials")).abs() < 1e-3, "{line:?}");
    }
    assert_eq!((outcomes, queries), (7_881, 1_313));
    assert!(worst <= 1e-3, "{worst}");
}

#[test]
fn estimate_without_evidence_is_the_prior() {
    let estimate = Estimate::default();
    for kind in FailureKind::ALL {
        let odds =
            estimate.view((&tool("t"), kind), prior(kind), false, Timestamp::default()).odds(RetryState::default());
        for p in odds.p {
            assert!((p - prior(kind)).abs() < 1e-12, "{kind:?}");
        }
        assert_eq!(odds.basis(0), Basis::Prior);
    }
}

#[test]
fn years_do_not_break_the_sums() {
    let mut estimate = Estimate::default();
    let day = 86_400_000;
    for n in 0..2_000_i64 {
        let line = serde_json::json!(["outcome", n * day / 1_000, "t", "timeout", 1, 1, 0, 1]);
        let trial = trial(&estimate, line.as_array().expect("a list"));
        estimate.learn(&trial);
    }
    let now = Timestamp::from_millis(2_000 * day);
    let odds = estimate.view((&tool("t"), FailureKind::Timeout), 0.5, false, now).odds(RetryState::default());
    // One trial a day with a half-life of four days: the geometric sum of 2^(-1/4).
    let expected = 0.25_f64.exp2().recip() / (1.0 - 0.25_f64.exp2().recip());
    assert!((odds.trials[1] - expected).abs() < 1e-6, "{odds:?}");
    assert_eq!(odds.basis(1), Basis::Cell);
    let forgotten = Timestamp::from_millis(2_100 * day);
    let odds = estimate.view((&tool("t"), FailureKind::Timeout), 0.5, false, forgotten).odds(RetryState::default());
    assert!((odds.p[1] - 0.5).abs() < 1e-3, "{odds:?}");
}

#[test]
fn stored_counts_restore_the_estimate() {
    let mut learned = Estimate::default();
    let mut last = Timestamp::default();
    for n in 0..60 {
        let line =
            serde_json::json!(["outcome", n * 600, format!("t{}", n % 3), "timeout", n % 5, 1 + n % 4, n % 3, n % 2]);
        let trial = trial(&learned, line.as_array().expect("a list"));
        last = trial.at;
        learned.learn(&trial);
    }
    let restored = Estimate::restore(&learned.counts(last));
    for n in 0..3 {
        for attempt in 1..=3 {
            let state = RetryState { attempt, tool: ToolState::Failing };
            let odds = |estimate: &Estimate| {
                estimate.view((&tool(&format!("t{n}")), FailureKind::Timeout), 0.5, false, last).odds(state)
            };
            for (mine, theirs) in odds(&restored).p.iter().zip(odds(&learned).p) {
                assert!((mine - theirs).abs() < 1e-9);
            }
        }
    }
}
