//! Figures of a replay: each refusal in its column, closings with the new results after them, and rates.

use callgate_core::offline::{
    closings::ClosingCounts,
    summary::{RefusalCounts, WaitCounts},
};

use super::{decisions, replay, rows};

#[test]
fn reuse_is_scored_by_its_record() {
    let once = "policy_engine: {tool_schemas: {pay: {effect: write, once: true}}}";
    let paid = r#""result":"paid""#;
    for (second, expected) in [
        (paid, RefusalCounts { rightly: 1, ..RefusalCounts::default() }),
        (r#""result":"paid again""#, RefusalCounts { answer_differed: 1, ..RefusalCounts::default() }),
        (r#""result":null"#, RefusalCounts { unknown: 1, ..RefusalCounts::default() }),
    ] {
        let (lines, summary) = replay(&rows("t", &[("pay", paid), ("pay", second)]), once, false);
        assert_eq!(decisions(&lines)[1], "REUSE duplicate_call_blocked");
        assert_eq!((summary.refused, summary.refused_by_rule["same_call"]), (expected, expected), "{second}");
    }
}

#[test]
fn ask_is_no_refusal_and_a_wait_counts_by_its_answer() {
    let (ok, other) = (r#""result":"a""#, r#""result":"b""#);
    let asked = "policy_engine: {authorization: {tiers: [{name: money, pattern: pay, action: hitl}]}}";
    let (lines, summary) = replay(&rows("t", &[("pay", ok)]), asked, false);
    assert_eq!((decisions(&lines)[0].split(' ').next(), summary.asks), (Some("ASK"), 1));
    assert_eq!(summary.refused, RefusalCounts::default());
    let slow = r#""result":"503 Service Unavailable","is_error":true"#;
    for (second, changed) in [(slow, 0), (other, 1)] {
        let (_, summary) = replay(&rows("t", &[("get", slow), ("get", second)]), "", false);
        assert_eq!(summary.waits, WaitCounts { calls: 1, changed }, "{second}");
    }
}

#[test]
fn closed_run_counts_once_with_the_new_results_after_it() {
    let budget = "policy_engine: {budgets: {run: {max_steps: 2}}}";
    let run = |run: &str, result: &str| format!(r#""result":"{result}","run":"{run}""#);
    let calls = ["a", "b", "c", "d"].map(|tool| (tool, run("one", tool)));
    let next = ["a", "b"].map(|tool| (tool, run("two", tool)));
    let calls: Vec<_> = calls.iter().chain(&next).map(|(tool, rest)| (*tool, rest.as_str())).collect();
    let (_, summary) = replay(&rows("t", &calls), budget, false);
    assert_eq!(summary.closed.runs, ClosingCounts { closed: 1, productive: 1, new_results: 1 });
    assert_eq!(summary.refused_by_rule["budget"], RefusalCounts { wrongly: 2, ..RefusalCounts::default() });
}

#[test]
fn closed_fingerprint_is_no_closed_run() {
    let same: Vec<_> = vec![("look", r#""result":"the queue holds no job at all""#); 34];
    let (lines, summary) = replay(&rows("t", &same), "policy_engine: {rules: {same_call: {mode: off}}}", false);
    assert!(lines.iter().any(|line| line["level"] == "break"), "{summary}");
    assert_eq!(summary.closed.fingerprints, ClosingCounts { closed: 1, productive: 0, new_results: 0 });
    let rates = summary.to_json().expect("JSON")["rates"].clone();
    assert!(rates["futile_refused_percent"].as_f64().is_some_and(|percent| percent > 0.0), "{rates}");
}
