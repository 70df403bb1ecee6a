//! Whole stories against all rules: `tests/traces/*.trace`, one a file; two of each rule in `tests/traces/rules`; and
//! the shipped example policy, rule by rule.

use std::{collections::BTreeSet, fs};

use crate::{
    domain::{finding::Decision, verdict::Verdict},
    rules::{
        RULES, budget,
        testing::{check, check_folder, play},
    },
};

/// For each rule a story in which it must fire, and one near it in which it must not.
const BY_RULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/rules");

#[test]
fn every_story_ends_as_told() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces");
    assert!(check_folder(folder) >= 14, "stories are missing from {folder}");
}

/// For each rule what makes it fire under the example policy: what comes before, the call, and what is said of it.
const FIRES: [(&str, &str, &str, &str); 19] = [
    ("halted", "halt session s", "get_order {}", "stop session_halted"),
    ("unknown_tool", "", "gett_order {}", "deny unknown_tool"),
    ("schema", "", "create_invoice {\"order_id\":17}", "deny validation_error"),
    ("phase", "phase PLAN", "update_order {}", "deny phase_forbids"),
    ("requires", "", "send_email {\"draft_id\":\"d1\"}", "deny missing_prerequisite"),
    ("same_call", "get_order {} -> ok a", "get_order {}", "reuse duplicate_call_blocked"),
    ("repeat", "update_order {} -> ok same x5", "update_order {}", "deny no_progress, critical repeat 5"),
    ("poll", "job_status {} -> ok same x10", "job_status {}", "allow, warning poll 10"),
    ("cycle", "(get_order {} -> ok a; get_payment {} -> ok b) x10", "get_order {}", "deny cycle, critical cycle 21"),
    ("breaker", "get_order {\"n\":new} -> error other x15", "get_order {\"n\":new}", "allow, warning breaker 15"),
    (
        "same_error",
        "get_order {\"n\":new} -> error not_found x3",
        "get_order {\"n\":new}",
        "deny same_error, critical same_error 3",
    ),
    (
        "churn",
        "search_orders {\"text\":\"late orders of May\",\"n\":new} -> ok [] x3",
        "search_orders {\"text\":\"late orders of May\",\"n\":new}",
        "allow, warning churn 3",
    ),
    ("refused", "halt tool get_order\n get_order {\"n\":new} => deny session_halted x3", "get_order {}", "REFUSED"),
    (
        "after_compaction",
        "phase WORK\n compacted\n get_order {} -> ok same x3",
        "get_order {}",
        "deny no_progress, critical after_compaction 3",
    ),
    (
        "side_effects",
        "create_invoice {\"order_id\":\"o-1\",\"amount_cents\":1,\"currency\":\"EUR\"} -> ok a",
        "charge_card {\"order_id\":\"o-1\"}",
        "ask resource_already_changed",
    ),
    (
        "cooldown",
        "step 0s\n get_order {\"n\":new} -> error rate_limited after 20s",
        "get_order {\"n\":new}",
        "wait cooldown",
    ),
    ("growth", "step 0s\n get_order {\"n\":new} -> ok new x20", "get_order {\"n\":new}", "wait runaway"),
    (
        "budget",
        "limit run max_steps 1\n get_order {} -> ok a => allow step_budget_exceeded disabled",
        "get_payment {}",
        "stop step_budget_exceeded",
    ),
    ("tier", "", "transfer_money {} because so", "ask approval_required"),
];

#[test]
fn every_rule_fires_from_the_example_policy_and_can_be_shadowed() {
    let told: Vec<&str> = FIRES.iter().map(|(rule, ..)| *rule).collect();
    let silent: Vec<&str> = RULES.iter().map(|(id, _)| *id).filter(|id| !told.contains(id)).collect();
    assert!(silent.is_empty(), "no story makes {silent:?} fire");
    for (rule, before, call, expected) in FIRES {
        if expected == "REFUSED" {
            // It counts what others refuse.
            let before = format!("policy example\n rules {rule} halted\n {before}\n");
            check(&format!("{before} {call} => deny session_halted, warning refused 3"));
            check(&format!("{before} mode {rule} shadow\n {call} => deny session_halted, warning refused 3"));
            continue;
        }
        let story = format!("policy example\n rules {rule}\n {before}\n");
        check(&format!("{story} {call} => {expected}"));
        let (_, finding) = expected.split_once([' ', ',']).expect("a finding");
        check(&format!("{story} mode {rule} shadow\n {call} => allow {finding}"));
    }
}

fn story_of(rule: &str, end: &str) -> String {
    let path = format!("{BY_RULE}/{rule}.{end}.trace");
    let story = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(story.starts_with('#'), "{path} does not begin with what happens, and why");
    let silences = |line: &str| line.starts_with("rules ") || line.starts_with("mode ");
    assert!(!story.lines().any(silences), "{path} does not run with all rules");
    assert!(story.lines().last().is_some_and(|line| line.contains("=> ")), "{path} ends without a verdict");
    story
}

/// Plays a rule's story; no call of it may run against a refusal, as those whose verdict nobody expects would.
fn told(rule: &str, end: &str) -> Vec<Verdict> {
    let said = play(&story_of(rule, end), None).unwrap_or_else(|problem| panic!("{rule}.{end}.trace: {problem}"));
    let forced = said.iter().find(|verdict| !verdict.is_enforced());
    assert!(forced.is_none(), "{rule}.{end}.trace runs what was refused: {forced:?}");
    said
}

#[test]
fn every_rule_has_its_two_stories() {
    let ends = ["fires", "passes"];
    let expected = RULES.iter().flat_map(|(rule, _)| ends.map(|end| format!("{rule}.{end}.trace")));
    let found = fs::read_dir(BY_RULE).expect("a folder").map(|entry| entry.expect("readable").file_name());
    let found: BTreeSet<String> = found.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(found, expected.collect());
}

#[test]
fn a_rule_fires_in_its_story_and_the_story_ends_otherwise_without_it() {
    for (rule, _) in RULES {
        let said = told(rule, "fires");
        let speaks = said.iter().flat_map(|verdict| &verdict.findings).any(|finding| finding.rule == *rule);
        assert!(speaks, "{rule}.fires.trace never hears {rule}");
        let without = play(&story_of(rule, "fires"), Some(rule));
        assert!(without.is_err(), "{rule}.fires.trace ends as told without {rule}");
    }
}

#[test]
fn a_rule_is_silent_in_the_story_near_it() {
    for (rule, _) in RULES {
        let said = told(rule, "passes");
        // Only a budget speaks before it is reached: it says what is left.
        let fires = |decision| decision > Decision::Allow || *rule != budget::ID;
        let findings = said.iter().flat_map(|verdict| &verdict.findings);
        let fired: Vec<_> = findings.filter(|finding| finding.rule == *rule && fires(finding.decision)).collect();
        assert!(fired.is_empty(), "{rule}.passes.trace: {fired:?}");
    }
}
