//! Custom rule: one file and one line suffice for policy, schema, defaults, explanation and stories. The properties
//! cover it separately.

#[path = "../../../../tests/own_rule/same_tool.rs"]
mod same_tool;

use super::play_with;
use crate::{
    domain::tool::ToolSpec,
    policy::{self, Policy},
    rules::{Mode, RULES, RecordedCall, Rule, levels::DetectorLevels},
};

/// Its text, which CONTRIBUTING.md#a-rule shows.
const SOURCE: &str = include_str!("../../../../tests/own_rule/same_tool.rs");

/// The one line.
fn rules() -> Vec<Rule> {
    let own = same_tool::RULE.manual(SOURCE);
    RULES.iter().copied().chain([own]).collect()
}

fn compile_policy(text: &str) -> Result<Policy, Vec<String>> {
    policy::compile_with(text, &rules()).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn its_levels_mode_and_text_are_keys_of_the_policy() {
    let policy = compile_policy(
        "policy_engine:
  loops: {same_tool: {warning: 2, break: 4}}
  rules: {same_tool: {mode: shadow, message: '{count} of {tool}'}}
  tool_schemas: {list_orders: {effect: read, loops: {same_tool: {critical: 3}}}}
",
    );
    let policy = policy.expect("a good policy");
    let slot = policy.rules.find("same_tool").expect("registered");
    assert_eq!(slot.levels(), Some(&DetectorLevels { warning: Some(2), critical: None, break_at: Some(4) }));
    assert_eq!((slot.mode, slot.message.as_deref()), (Mode::Shadow, Some("{count} of {tool}")));
    let built_in = compile_policy("policy_engine: {}").expect("a good policy");
    assert_eq!(built_in.rules.find("same_tool").and_then(|slot| slot.levels()), Some(&DetectorLevels::new(5, 8, 12)));
}

#[test]
fn error_in_its_keys_has_path_and_line() {
    let errors =
        |loops: &str| compile_policy(&format!("policy_engine:\n  loops:\n    {loops}\n")).expect_err("a bad policy");
    let too_far = "line 3: policy_engine.loops.same_tool: needs 40 calls, and the window holds 30: it would never fire";
    assert_eq!(errors("same_tool: {break: 40}"), [too_far]);
    let unknown = errors("same_tol: {break: 9}");
    assert!(unknown[0].contains("did you mean `same_tool`?"), "{unknown:?}");
    assert!(policy::compile("policy_engine: {loops: {same_tool: {break: 9}}}").is_err(), "the built-in rules know it");
}

#[test]
fn the_schema_publishes_it_with_its_summary() {
    let known = |schema: serde_json::Value| schema.pointer("/$defs/Loops/properties/same_tool").cloned();
    let published = known(policy::schema_with(&rules())).expect("its key");
    assert_eq!(published["$ref"], "#/$defs/LevelKeys");
    assert_eq!(published["description"], "one tool, and nothing but it.");
    assert_eq!(known(policy::schema()), None);
}

#[test]
fn explain_asks_it_why_it_was_silent() {
    let policy = compile_policy("policy_engine: {loops: {same_tool: {critical: 7}}}").expect("a good policy");
    let (tool, spec) = ("list_orders", ToolSpec::default());
    let asked = RecordedCall { tool, spec: &spec, declared: false, has_schema: false, approved_by: None, cx: None };
    let told: Vec<_> = policy.rules.iter().map(|slot| (slot.rule.id, slot.silent(&asked))).collect();
    assert_eq!(told.last(), Some(&("same_tool", "nothing to say; it refuses from 7 on".to_owned())));
}

#[test]
fn its_stories_are_played() {
    let story = |end: &str| {
        let path = format!("{}/../../tests/own_rule/same_tool.{end}.trace", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    };
    play_with(&rules(), &story("fires"), None).expect("it fires");
    play_with(&rules(), &story("fires"), Some("same_tool")).expect_err("it does not fire without the rule");
    play_with(&rules(), &story("passes"), None).expect("it is silent");
    let broken = "rules same_tool\n loops same_tool 1 2 3\n list {\"n\":new} -> ok new x3\n";
    play_with(&rules(), &format!("{broken} list {{}} => deny no_progress, break same_tool 3"), None)
        .expect("it breaks");
}

#[test]
fn contributing_shows_it_as_it_is_compiled() {
    let page = include_str!("../../../../CONTRIBUTING.md");
    assert!(
        page.contains(&format!("```rust\n{SOURCE}```\n")),
        "copy tests/own_rule/same_tool.rs into CONTRIBUTING.md#a-rule"
    );
}
