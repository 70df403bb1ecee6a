//! Structure of the SARIF 2.1.0 log.

use std::collections::BTreeSet;

use callgate_core::tool_list::lint::LINTS;
use serde_json::Value;

use super::tools;

fn log(words: &[&str]) -> Value {
    let said = tools(&[&["lint", "--format", "sarif"], words].concat());
    assert_eq!(said.err, "");
    serde_json::from_str(&said.out).expect("JSON")
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn the_log_has_one_run_with_a_rule_for_every_lint() {
    let log = log(&["poor.openai.json"]);
    assert_eq!(keys(&log), BTreeSet::from(["$schema", "runs", "version"]));
    assert_eq!((log["version"].as_str(), log["runs"].as_array().map(Vec::len)), (Some("2.1.0"), Some(1)));
    let driver = &log["runs"][0]["tool"]["driver"];
    assert_eq!(driver["name"], "callgate");
    let rules = driver["rules"].as_array().expect("rules");
    assert_eq!(rules.len(), LINTS.len());
    for (rule, lint) in rules.iter().zip(LINTS) {
        assert_eq!(rule["id"], lint.id);
        assert_eq!(rule["defaultConfiguration"]["level"], lint.severity.as_str());
        assert_eq!(rule["help"]["text"], lint.manual());
        assert!(rule["shortDescription"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{rule}");
    }
}

#[test]
fn each_result_points_at_its_rule_its_line_and_its_part_of_the_tool() {
    let log = log(&["poor.openai.json"]);
    let results = log["runs"][0]["results"].as_array().expect("results");
    assert!(results.len() > 20, "{}", results.len());
    for result in results {
        let rule = result["ruleIndex"].as_u64().and_then(|at| LINTS.get(at as usize)).expect("a rule");
        assert_eq!(result["ruleId"], rule.id);
        assert!(matches!(result["level"].as_str(), Some("note" | "warning" | "error")), "{result}");
        assert!(result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
        let locations = result["locations"].as_array().expect("locations");
        let [location] = locations.as_slice() else { panic!("{result}") };
        let physical = &location["physicalLocation"];
        assert_eq!(physical["artifactLocation"]["uri"], "poor.openai.json");
        assert!(physical["region"]["startLine"].as_u64().is_some_and(|line| line >= 1), "{result}");
        assert!(location["logicalLocations"][0]["fullyQualifiedName"].is_string(), "{result}");
    }
    let money = results.iter().find(|result| result["ruleId"] == "money_minor_units").expect("money");
    let location = &money["locations"][0];
    let text = include_str!("poor.openai.json");
    let line = location["physicalLocation"]["region"]["startLine"].as_u64().expect("a line") as usize;
    let tool: String = text.lines().skip(line - 1).take(4).collect();
    assert!(tool.contains("\"name\": \"charge_card\""), "{tool}");
    let place = "charge_card/input_schema/properties/amount";
    assert_eq!(location["logicalLocations"][0]["fullyQualifiedName"], place);
}

#[test]
fn a_clean_list_gives_an_empty_log() {
    let log = log(&["good.mcp.json"]);
    assert_eq!(log["runs"][0]["results"], serde_json::json!([]));
}
