//! Import of a list with real schemas: the resulting policy enforces arguments, and nothing else until its owner
//! agrees.

use std::fs;

use callgate_core::{
    domain::{
        call::Request,
        effect::EffectKind,
        finding::Decision,
        ids::{CallId, DEFAULT_TENANT, SessionId, ToolName},
        json,
        reason::Reason,
        time::Timestamp,
        tool::{RiskLevel, ToolSpec},
        verdict::Verdict,
    },
    offline::world::World,
    policy::{self, Policy},
    rules::schema,
};

use super::tools;

const OPENAI: &str = r#"[{"type": "function", "function": {
  "name": "book_flight",
  "description": "Books a flight for several passengers.",
  "strict": true,
  "parameters": {
    "type": "object",
    "properties": {
      "cabin": {"type": "string", "enum": ["economy", "business"]},
      "passengers": {"type": "array", "minItems": 1, "maxItems": 9, "items": {
        "type": "object",
        "properties": {
          "name": {"type": "string", "minLength": 1},
          "bags": {"type": "integer", "minimum": 0, "maximum": 4},
          "meal": {"type": ["string", "null"], "enum": ["vegan", "halal", null]}
        },
        "required": ["name", "bags"],
        "additionalProperties": false}},
      "contact": {"type": "object", "properties": {"email": {"type": "string", "format": "email"}},
        "required": ["email"], "additionalProperties": false}
    },
    "required": ["cabin", "passengers", "contact"],
    "additionalProperties": false
  }
}}]"#;

const ANTHROPIC: &str = r##"{"tools": [{
  "name": "file_ticket",
  "description": "Files a ticket: with a 'quote', a #hash, and a colon.",
  "input_schema": {
    "type": "object",
    "properties": {
      "priority": {"type": "integer", "minimum": 1, "maximum": 5},
      "labels": {"type": "array", "items": {"$ref": "#/$defs/label"}, "uniqueItems": true},
      "owner": {"anyOf": [{"type": "string", "pattern": "^u-[0-9]+$"}, {"type": "null"}]}
    },
    "required": ["priority"],
    "additionalProperties": false,
    "$defs": {"label": {"type": "string", "enum": ["yes", "no", "~", "bug: crash"]}}
  }
}]}"##;

const MCP: &str = r#"{"tools": [{
  "name": "delete_branch",
  "title": "Delete a branch",
  "description": "Deletes a branch for good.",
  "inputSchema": {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
      "branch_id": {"type": "integer", "minimum": 1},
      "options": {"type": "object", "properties": {"force": {"type": "boolean", "default": false}},
        "additionalProperties": false}
    },
    "required": ["branch_id"],
    "additionalProperties": false
  },
  "annotations": {"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false}
}, {
  "name": "list_branches",
  "description": "Lists branches.",
  "inputSchema": {"type": "object", "properties": {"limit": {"type": "integer", "minimum": 1}}},
  "annotations": {"readOnlyHint": true}
}]}"#;

/// The policy file that the command writes for the three lists together.
fn import_lists() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let lists = [("openai.json", OPENAI), ("anthropic.json", ANTHROPIC), ("mcp.json", MCP)].map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("writable");
        path.to_string_lossy().into_owned()
    });
    let written = folder.path().join("policy.yaml");
    let words = ["import", &lists[0], &lists[1], &lists[2], "-o", &written.to_string_lossy()];
    let said = tools(&words);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
    fs::read_to_string(&written).expect("written")
}

fn compile_policy(text: &str) -> Policy {
    let policy = policy::compile(text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    assert!(policy.warnings.is_empty(), "{:?}\n{text}", policy.warnings);
    policy
}

/// Verdict on a call of a new session.
fn judge_call(policy: &Policy, tool: &str, arguments: &str) -> Verdict {
    let request = Request::new(
        DEFAULT_TENANT,
        SessionId::parse("session", "s").expect("valid"),
        CallId::parse("call_id", "c").expect("valid"),
        ToolName::parse("tool", tool).expect("valid"),
        json::parse(arguments).expect("JSON"),
    );
    let now = Timestamp::from_millis(1_735_689_600_000);
    World::new(DEFAULT_TENANT).evaluate(policy, &policy.propose(request), None, now).expect("no caller_error").0
}

#[test]
fn imported_schemas_refuse_what_violates_them_and_name_the_field() {
    let policy = compile_policy(&import_lists());
    for (tool, arguments) in [
        (
            "book_flight",
            r#"{"cabin":"economy","passengers":[{"name":"Ada","bags":0,"meal":null}],"contact":{"email":"a@b.org"}}"#,
        ),
        ("file_ticket", r#"{"priority":1,"labels":["no","~","bug: crash"],"owner":null}"#),
        ("delete_branch", r#"{"branch_id":7,"options":{"force":true}}"#),
        ("list_branches", r#"{"limit":3}"#),
    ] {
        let verdict = judge_call(&policy, tool, arguments);
        assert_eq!(verdict.decision, Decision::Allow, "{tool} {arguments}: {:?}", verdict.findings);
    }
    let flight = |cabin: &str, passenger: &str, email: &str| {
        format!(r#"{{"cabin":"{cabin}","passengers":[{passenger}],"contact":{{"email":"{email}"}}}}"#)
    };
    let ada = r#"{"name":"Ada","bags":1}"#;
    for (tool, arguments, field, keyword) in [
        ("book_flight", flight("first", ada, "a@b.org"), "cabin", "enum"),
        ("book_flight", flight("economy", r#"{"name":"Ada","bags":9}"#, "a@b.org"), "passengers[0].bags", "maximum"),
        (
            "book_flight",
            flight("economy", &format!(r#"{ada},{{"name":"Bob","bags":1,"meal":"beef"}}"#), "a@b.org"),
            "passengers[1].meal",
            "enum",
        ),
        ("book_flight", flight("economy", r#"{"bags":1}"#, "a@b.org"), "passengers[0].name", "required"),
        ("book_flight", flight("economy", "", "a@b.org"), "passengers", "minItems"),
        ("book_flight", flight("economy", ada, "nobody"), "contact.email", "format"),
        ("file_ticket", r#"{"priority":0}"#.into(), "priority", "minimum"),
        ("file_ticket", r#"{"priority":"2"}"#.into(), "priority", "type"),
        ("file_ticket", r#"{"priority":2,"labels":["nope"]}"#.into(), "labels[0]", "enum"),
        ("file_ticket", r#"{"priority":2,"labels":["no","no"]}"#.into(), "labels", "uniqueItems"),
        ("file_ticket", r#"{"priority":2,"prority":2}"#.into(), "prority", "unknown_field"),
        ("delete_branch", "{}".into(), "branch_id", "required"),
        ("delete_branch", r#"{"branch_id":7,"options":{"forced":true}}"#.into(), "options.forced", "unknown_field"),
    ] {
        let verdict = judge_call(&policy, tool, &arguments);
        let winner = verdict.winner().unwrap_or_else(|| panic!("{tool} {arguments} is let through"));
        let decided = (verdict.decision, winner.rule.to_string(), winner.reason);
        assert_eq!(
            decided,
            (Decision::Deny, schema::RULE.id.to_owned(), Reason::ValidationError),
            "{tool} {arguments}"
        );
        let found: Vec<(&str, &str)> =
            winner.violations.iter().map(|found| (found.field.as_str(), found.keyword.as_str())).collect();
        assert_eq!(found, [(field, keyword)], "{tool} {arguments}");
        assert!(winner.message.contains(field), "{}", winner.message);
    }
}

#[test]
fn proposed_risk_and_effect_hold_only_once_confirmed() {
    let text = import_lists();
    let policy = compile_policy(&text);
    let names: Vec<&str> = policy.tools().map(|(name, _)| name).collect();
    assert_eq!(names, ["book_flight", "delete_branch", "file_ticket", "list_branches"]);
    for (name, spec) in policy.tools() {
        assert_eq!(*spec, ToolSpec::default(), "{name} in\n{text}");
    }
    let drop = r#"{"branch_id":7}"#;
    assert_eq!(judge_call(&policy, "delete_branch", drop).decision, Decision::Allow);

    let proposed = "# risk_level: HIGH   # proposed: its annotations say destructiveHint: true";
    let of_it = text.split_once("delete_branch:\n").expect("the tool").1;
    assert!(of_it.trim_start().starts_with(proposed), "{text}");
    let confirm = |line: &str| if line.contains("# proposed: ") { line.replacen("# ", "", 1) } else { line.to_owned() };
    let policy = compile_policy(&text.lines().map(confirm).collect::<Vec<_>>().join("\n"));
    let told = |tool: &str| policy.tools().find(|(name, _)| *name == tool).map(|(_, spec)| (spec.risk, spec.effect));
    assert_eq!(told("delete_branch"), Some((Some(RiskLevel::High), EffectKind::Write)));
    assert_eq!(told("list_branches"), Some((Some(RiskLevel::Low), EffectKind::Read)));
    let verdict = judge_call(&policy, "delete_branch", drop);
    assert_eq!(verdict.decision, Decision::Ask, "{:?}", verdict.findings);
    let refused = judge_call(&policy, "delete_branch", r#"{"branch_id":0}"#);
    assert_eq!(refused.winner().map(|winner| winner.reason), Some(Reason::ValidationError));
}
