//! Stories against all rules: `tests/traces/*.trace`, one per file; two for each rule in `tests/traces/rules`; and the
//! example policy, rule by rule.
#![expect(clippy::disallowed_methods, reason = "tests read files")]

use std::{collections::BTreeSet, fs};

use crate::{
    domain::{
        finding::{Decision, Finding},
        verdict::Verdict,
    },
    rules::{
        RULES, budget,
        testing::{check_folder, play},
    },
};

/// For each rule a story in which it must fire, a similar one in which it must not, and one under the example policy.
const BY_RULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traces/rules");

#[test]
fn every_story_ends_as_told() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traces");
    assert!(check_folder(folder) >= 14, "stories are missing from {folder}");
}

/// Each rule fires under the example policy; in shadow mode it finds the same, and nothing is applied.
#[test]
fn every_rule_fires_from_the_example_policy_and_can_be_shadowed() {
    for rule in RULES.iter().map(|rule| rule.id) {
        let path = format!("{BY_RULE}/{rule}.example.trace");
        let story = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let (before, last) = story.trim_end().rsplit_once('\n').expect("more than one line");
        let (call, _) = last.split_once("=>").unwrap_or_else(|| panic!("{path} ends without a verdict"));
        let said = |story: &str| play(story, None).unwrap_or_else(|problem| panic!("{path}: {problem}"));
        let findings = |story: &str| {
            let last = said(story).pop().expect("a verdict");
            last.findings.into_iter().filter(|finding| finding.rule == rule).collect::<Vec<_>>()
        };
        let (holds, shadowed) = (findings(&story), findings(&format!("{before}\nmode {rule} shadow\n{call}")));
        assert!(!holds.is_empty() && holds.iter().all(|finding| finding.enforced), "{path}: {holds:?}");
        let in_shadow: Vec<_> = holds.into_iter().map(|finding| Finding { enforced: false, ..finding }).collect();
        assert_eq!(shadowed, in_shadow, "{path}");
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

/// Runs a rule's story; no call of it may run against a refusal, as calls without an expected verdict would.
fn play_story(rule: &str, end: &str) -> Vec<Verdict> {
    let said = play(&story_of(rule, end), None).unwrap_or_else(|problem| panic!("{rule}.{end}.trace: {problem}"));
    let forced = said.iter().find(|verdict| !verdict.is_enforced());
    assert!(forced.is_none(), "{rule}.{end}.trace runs what was refused: {forced:?}");
    said
}

#[test]
fn every_rule_has_its_stories() {
    let ends = ["example", "fires", "passes"];
    let expected = RULES.iter().flat_map(|rule| ends.map(|end| format!("{}.{end}.trace", rule.id)));
    let found = fs::read_dir(BY_RULE).expect("a folder").map(|entry| entry.expect("readable").file_name());
    let found: BTreeSet<String> = found.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(found, expected.collect());
}

#[test]
fn a_rule_fires_in_its_story_and_the_story_ends_otherwise_without_it() {
    for rule in RULES.iter().map(|rule| rule.id) {
        let said = play_story(rule, "fires");
        let speaks = said.iter().flat_map(|verdict| &verdict.findings).any(|finding| finding.rule == rule);
        assert!(speaks, "{rule}.fires.trace never hears {rule}");
        let without = play(&story_of(rule, "fires"), Some(rule));
        assert!(without.is_err(), "{rule}.fires.trace ends as told without {rule}");
    }
}

#[test]
fn a_rule_is_silent_in_the_story_near_it() {
    for rule in RULES.iter().map(|rule| rule.id) {
        let said = play_story(rule, "passes");
        // Only a budget warns before it is reached.
        let fires = |decision| decision > Decision::Allow || rule != budget::RULE.id;
        let findings = said.iter().flat_map(|verdict| &verdict.findings);
        let fired: Vec<_> = findings.filter(|finding| finding.rule == rule && fires(finding.decision)).collect();
        assert!(fired.is_empty(), "{rule}.passes.trace: {fired:?}");
    }
}
