//! Complete lists, from good to poor, with their expected reports beside.

use std::{collections::BTreeMap, fs};

use callgate_core::policy;
use serde_json::Value;

use super::{folder, tools};

/// Fails unless the report on a list is the kept one, and the exit code that one.
#[track_caller]
fn check_report(words: &[&str], kept: &str, code: i32) {
    let said = tools(&[&["lint"], words].concat());
    let expected = fs::read_to_string(folder().join(kept)).expect("kept");
    assert!(said.out == expected, "{words:?} gave\n{}\nnot what {kept} has", said.out);
    assert_eq!((said.code, said.err.as_str()), (Some(code), ""));
}

#[test]
fn a_poor_list_is_told_all_that_is_wrong_with_it() {
    check_report(&["poor.openai.json"], "poor.txt", 1);
}

#[test]
fn a_real_list_is_told_what_its_policy_makes_certain() {
    check_report(&["airline.openai.json", "--policy", "../../deploy/policy.airline.yaml"], "airline.txt", 1);
}

#[test]
fn a_good_list_is_clean_with_its_policy_and_without() {
    for words in [&["lint", "good.mcp.json"][..], &["lint", "good.mcp.json", "--policy", "good.policy.yaml"]] {
        let words = [words, &["--deny", "warnings"]].concat();
        let said = tools(&words);
        assert_eq!((said.code, said.out.lines().next()), (Some(0), Some("0 errors, 0 warnings, 0 notes in 5 tools")));
    }
}

#[test]
fn a_fair_list_gets_one_warning_and_guesses_are_notes() {
    let said = tools(&["lint", "desk.anthropic.json", "--format", "json"]);
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    let reports = document["reports"].as_array().expect("reports").iter();
    let told: Vec<String> = reports
        .map(|report| {
            let text = |key: &str| report[key].as_str().unwrap_or("-").to_owned();
            let guessed = if report["guessed"] == true { " guessed" } else { "" };
            format!(
                "{} {} {}{} {}{guessed}",
                text("severity"),
                text("lint"),
                text("tool"),
                text("pointer"),
                report["line"]
            )
        })
        .collect();
    assert_eq!(told, ["warning free_text_enum set_ticket_priority/input_schema/properties/priority 41"]);
    assert_eq!(said.code, Some(0));
    assert_eq!(said.err, "callgate: omitted, without a schema: web_search_20250305\n");
    let summary = &document["summary"];
    assert_eq!((&summary["tools"], &summary["warnings"]), (&Value::from(5), &Value::from(1)));
    let all: u64 =
        document["tools"].as_array().expect("tools").iter().filter_map(|t| t["choice_tokens"].as_u64()).sum();
    assert!(all > 0 && summary["choice_tokens"] == all, "{summary}");
}

#[test]
fn lists_are_judged_together() {
    let said = tools(&["lint", "desk.anthropic.json", "poor.openai.json", "--format", "json"]);
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    let reports = document["reports"].as_array().expect("reports");
    let of = |lint: &str| reports.iter().filter(|report| report["lint"] == lint).count();
    // One list brings the way out, the other one the siblings.
    assert_eq!((of("way_out"), of("siblings")), (0, 2), "{reports:#?}");
    let files: BTreeMap<&str, ()> = reports.iter().filter_map(|report| Some((report["file"].as_str()?, ()))).collect();
    assert!(files.contains_key("poor.openai.json"), "{files:?}");
}

#[test]
fn every_list_is_imported_into_a_policy_that_compiles() {
    for (file, count) in
        [("poor.openai.json", 5), ("good.mcp.json", 5), ("airline.openai.json", 10), ("desk.anthropic.json", 5)]
    {
        let said = tools(&["import", file, "--no-schemas"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let policy = policy::compile(&said.out).unwrap_or_else(|errors| panic!("{errors:?}\n{}", said.out));
        assert_eq!(policy.tools().count(), count, "{file}");
        let with_schemas: Value = serde_saphyr::from_str(&tools(&["import", file]).out).expect("YAML");
        let tools = with_schemas["policy_engine"]["tool_schemas"].as_object().expect("tools");
        let has_schema = |tool: &Value| tool["schema"]["type"] == "object";
        assert!(tools.len() == count && tools.values().all(has_schema), "{tools:#?}");
    }
}
