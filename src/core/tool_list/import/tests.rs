use serde_json::{Value, json};

use super::super::{ToolList, read};
use super::import;
use crate::policy::compile;
use crate::rules::testing::check;

const MIXED: &str = r#"[
  {"name": "cancel_order", "input_schema": {"type": "object", "properties": {
    "order_id": {"type": "string"}, "reason": {"type": "string"}}, "required": ["order_id", "reason"]}},
  {"name": "get_order", "inputSchema": {"properties": {"id": {"type": "string"}}, "required": ["id"]},
   "annotations": {"readOnlyHint": true}},
  {"type": "function", "function": {"name": "send_message", "parameters": {"properties": {"text": {}}}}},
  {"name": "get_job_status", "input_schema": {"properties": {"job_id": {"type": "string"}}, "required": ["job_id"]}},
  {"name": "put_file", "inputSchema": {}, "annotations": {"destructiveHint": true, "idempotentHint": true}},
  {"name": "run_workflow", "input_schema": {}},
  {"name": "run_tests", "input_schema": {}},
  {"name": "browser_scroll", "input_schema": {}},
  {"name": "ask_user", "input_schema": {}}
]"#;

fn list(text: &str) -> ToolList {
    read("mixed.json", text).expect("a good list")
}

/// The file with the proposals that this policy can hold taken into force.
fn confirm_proposals(text: &str, keys: &[&str]) -> String {
    let confirm = |line: &str| {
        let proposal = line.trim_start().strip_prefix("# ").filter(|rest| rest.contains("# proposed: "));
        let known = proposal.filter(|rest| keys.iter().any(|key| rest.starts_with(&format!("{key}:"))));
        known.map_or_else(|| format!("{line}\n"), |rest| format!("      {rest}\n"))
    };
    text.lines().map(confirm).collect()
}

#[test]
fn proposal_is_a_comment_with_its_reason() {
    let text = import(&list(MIXED), false);
    let body = text.split_once("tool_schemas:\n").expect("a body").1;
    let expected = r#"    cancel_order:
      # risk_level: HIGH   # proposed: a guess from `cancel` in its name: nothing may be left
      # effect: write   # proposed: a guess from `cancel` in its name
      # idempotent: true   # proposed: a guess from `cancel` in its name: twice is as once
      # side_effect_resource: "order/{order_id}"   # proposed: required, and its name reads like an identity or a path
      # canonical_fields: [order_id]   # proposed: without reason, whose wording changes from call to call
      suggested_next: []
    get_order:
      # risk_level: LOW   # proposed: its annotations say readOnlyHint: true
      # effect: read   # proposed: its annotations say readOnlyHint: true
      # side_effect_resource: "order/{id}"   # proposed: required, and its name reads like an identity or a path
      suggested_next: []
    send_message:
      # risk_level: HIGH   # proposed: a guess from `send` in its name: it may not be taken back
      # effect: write   # proposed: a guess from `send` in its name
      # once: true   # proposed: a guess from `send` in its name: doing it twice harms
      suggested_next: []
    get_job_status:
      # risk_level: LOW   # proposed: a guess from `get` in its name
      # effect: poll   # proposed: a guess from `get` in its name
      # side_effect_resource: "job/{job_id}"   # proposed: required, and its name reads like an identity or a path
      suggested_next: []
    put_file:
      # risk_level: HIGH   # proposed: its annotations say destructiveHint: true
      # effect: write   # proposed: its annotations say destructiveHint: true
      # idempotent: true   # proposed: its annotations say idempotentHint: true
      suggested_next: []
    run_workflow:
      # effect: unknown   # proposed: declare read, write, check or poll; neither its name nor annotations tell
      suggested_next: []
    run_tests:
      # risk_level: MEDIUM   # proposed: a guess from `tests` in its name
      # effect: check   # proposed: a guess from `tests` in its name
      suggested_next: []
    browser_scroll:
      # effect: write   # proposed: a guess from `scroll` in its name
      # repeatable: true   # proposed: a guess from `scroll` in its name: doing the same again is meant
      suggested_next: []
    ask_user:
      # terminal: true   # proposed: its name reads like a way out, which is never blocked nor charged
      suggested_next: []
"#;
    assert_eq!(body, expected);
}

#[test]
fn the_file_compiles_and_nothing_proposed_is_in_force() {
    let text = import(&list(MIXED), false);
    let policy = compile(&text).expect("a good policy");
    let declared: Vec<_> = policy.tools().filter(|(_, spec)| **spec != Default::default()).collect();
    assert_eq!((policy.tools().count(), declared), (9, Vec::new()));
    let keys = ["effect", "once", "idempotent", "repeatable", "side_effect_resource"];
    let policy = compile(&confirm_proposals(&text, &keys)).expect("a good policy");
    let effects = policy.tools().map(|(name, spec)| {
        let resource = spec.resource.as_ref().map_or("-".to_owned(), ToString::to_string);
        format!("{name} {} {resource} {} {}", spec.effect.as_str(), spec.once, spec.idempotent)
    });
    assert_eq!(
        effects.collect::<Vec<_>>(),
        [
            "ask_user unknown - false false",
            "browser_scroll write - false false",
            "cancel_order write order/{order_id} false true",
            "get_job_status poll job/{job_id} false false",
            "get_order read order/{id} false false",
            "put_file write - false true",
            "run_tests check - false false",
            "run_workflow unknown - false false",
            "send_message write - true false",
        ]
    );
}

/// The tools of the MCP filesystem server, by their names, annotations and required arguments.
fn filesystem() -> String {
    let reads = ["read_text_file", "read_media_file", "list_directory", "directory_tree", "get_file_info"];
    let of = |names: &[&str], required: &[&str], hints: Value| -> Vec<Value> {
        let properties: serde_json::Map<_, _> =
            required.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
        let tool = |name: &&str| {
            json!({"name": name, "annotations": hints,
                "inputSchema": {"type": "object", "properties": properties, "required": required}})
        };
        names.iter().map(tool).collect()
    };
    let (read, write) = (json!({"readOnlyHint": true}), json!({"readOnlyHint": false}));
    let mut tools = of(&reads, &["path"], read.clone());
    tools.extend(of(&["search_files"], &["path", "pattern"], read.clone()));
    tools.extend(of(&["list_allowed_directories"], &[], read));
    tools.extend(of(&["write_file"], &["path", "content"], write.clone()));
    tools.extend(of(&["edit_file"], &["path"], write.clone()));
    tools.extend(of(&["create_directory"], &["path"], write.clone()));
    tools.extend(of(&["move_file"], &["source", "destination"], write));
    tools.push(json!({"name": "read_multiple_files", "annotations": {"readOnlyHint": true},
        "inputSchema": {"properties": {"paths": {"type": "array"}}, "required": ["paths"]}}));
    Value::Array(tools).to_string()
}

#[test]
fn with_every_proposal_accepted_a_read_after_an_own_write_is_fresh() {
    let text = import(&list(&filesystem()), false);
    let keys = ["risk_level", "effect", "once", "idempotent", "repeatable", "side_effect_resource"];
    let accepted = confirm_proposals(&text, &keys);
    let (_, tools) = accepted.split_once("tool_schemas:").expect("the tools");
    let story = format!(
        r#"policy
  tool_schemas:{tools}
end
rules same_call
read_text_file {{"path":"/a/b"}} -> ok old
read_text_file {{"path":"/a/b"}} => reuse duplicate_call_blocked
list_directory {{"path":"/a"}} -> ok b
read_multiple_files {{"paths":["/a/b"]}} -> ok old
write_file {{"path":"/a/b","content":"new"}} -> ok written
read_text_file {{"path":"/a/b"}} -> ok new
list_directory {{"path":"/a"}} -> ok b again
read_multiple_files {{"paths":["/a/b"]}} -> ok new
move_file {{"source":"/a/b","destination":"/a/c"}} -> ok moved
read_text_file {{"path":"/a/b"}} -> error not_found
edit_file {{"path":"/a/c"}} -> ok edited
get_file_info {{"path":"/a/c"}} -> ok size 1
edit_file {{"path":"/x"}} -> ok edited
get_file_info {{"path":"/a/c"}} => reuse duplicate_call_blocked"#
    );
    check(&story);
}

#[test]
fn schemas_come_through_whole_and_odd_names_are_quoted() {
    let hostile = "a\"b: #c\u{2028}é\u{7f}\\n{x}";
    let schema = json!({
        "type": "object",
        "description": hostile,
        "properties": {hostile: {"enum": ["yes", "~", "1e3", "", 1.5, null, "- x", "line\nbreak"]}},
        "required": [hostile],
    });
    let names = ["yes", "odd: name # {", "\u{2028}", "12", "<<", "- a", "é"];
    let tools: Vec<Value> = names.iter().map(|name| json!({"name": name, "input_schema": schema})).collect();
    let list = list(&Value::Array(tools).to_string());
    for with_schemas in [false, true] {
        let text = import(&list, with_schemas);
        assert_eq!(text, import(&list, with_schemas), "the same bytes");
        let file: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let tools = file["policy_engine"]["tool_schemas"].as_object().expect("tools");
        assert_eq!(tools.len(), names.len());
        for name in names {
            let found = tools.get(name).unwrap_or_else(|| panic!("{name:?} in {text}"));
            assert_eq!(found.get("schema"), with_schemas.then_some(&schema), "{name}");
        }
    }
    compile(&import(&list, false)).expect("a good policy");
}

#[test]
fn an_empty_list_and_a_hostile_file_name_compile() {
    compile(&import(&ToolList::default(), true)).expect("a good policy");
    let list = read("a\npolicy_engine: 3", r#"[{"name":"a","input_schema":{}}]"#).expect("a good list");
    compile(&import(&list, false)).expect("a good policy");
}
