use super::read;

/// The tools of a list, one per line, or its problems.
fn describe_list(text: &str) -> String {
    match read("list.json", text) {
        Ok(list) => {
            let tools = list.tools.iter().map(|tool| {
                let fields = tool.input_schema["properties"].as_object().map_or(0, serde_json::Map::len);
                let hints: String = [(tool.hints.read_only, " read_only"), (tool.hints.destructive, " destructive")]
                    .iter()
                    .filter(|(hint, _)| *hint == Some(true))
                    .map(|(_, word)| *word)
                    .collect();
                format!("{} {:?} line {} {:?} {fields}{hints}", tool.name, tool.shape, tool.line, tool.description)
            });
            tools.chain(list.built_in.iter().map(|kind| format!("built in {kind}"))).collect::<Vec<_>>().join("\n")
        }
        Err(problems) => {
            let problems = problems.iter().map(|invalid| format!("{} {}", invalid.field, invalid.problem));
            problems.collect::<Vec<_>>().join("\n")
        }
    }
}

#[test]
fn all_shapes_are_read_and_may_be_mixed() {
    let list = r#"[
  {"type": "function", "function": {"name": "a", "description": "A.", "parameters": {"properties": {"x": {}}}}},
  {"type": "function", "name": "b", "parameters": {"type": "object", "properties": {}}, "strict": true},

  {"name": "c", "description": "C.", "input_schema": {"type": "object"}},
  {"name": "d", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true, "destructiveHint": null}},
  {"type": "function", "function": {"name": "e"}},
  {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
]"#;
    let expected = r#"a OpenAi line 2 "A." 1
b OpenAi line 3 "" 0
c Anthropic line 5 "C." 0
d Mcp line 6 "" 0 read_only
e OpenAi line 7 "" 0
built in web_search_20250305"#;
    assert_eq!(describe_list(list), expected);
}

#[test]
fn a_list_may_be_wrapped() {
    let tool = r#"{"name":"a","inputSchema":{"type":"object"}}"#;
    for text in [
        tool.to_owned(),
        format!("[{tool}]"),
        format!("\u{feff}{{\"tools\":[{tool}],\"nextCursor\":null}}"),
        format!("{{\"functions\":[{tool}]}}"),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"tools\":[{tool}]}}}}"),
    ] {
        assert_eq!(describe_list(&text), "a Mcp line 1 \"\" 0", "{text}");
    }
}

#[test]
fn everything_wrong_is_said_with_its_index_and_field() {
    let list = r#"[
  {"type": "function", "function": {"parameters": {}}},
  {"name": "b", "input_schema": []},
  {"name": 3, "input_schema": {}},
  {"name": "d", "inputSchema": {"type": "string"}},
  {"name": "e", "inputSchema": {}, "annotations": {"readOnlyHint": "yes"}},
  {"name": "f"},
  "g",
  {"name": "h", "name": "i", "input_schema": {}},
  {"name": "", "input_schema": {}},
  {"name": "j", "input_schema": {}},
  {"name": "j", "input_schema": {}, "description": 7},
  {"name": "j", "input_schema": {}}
]"#;
    let expected = r#"tools[0].function.name is missing
tools[1].input_schema must be a JSON Schema: an object
tools[2].name must be a string
tools[3].inputSchema.type must be "object": arguments are one
tools[4].annotations.readOnlyHint must be true or false
tools[5] has none of `function`, `parameters`, `input_schema`, `inputSchema`: it is no tool
tools[6] must be an object that describes a tool
tools[7] has the key "name" twice in one object (byte 46)
tools[8].name is empty
tools[10].description must be a string
tools[11].name is "j", as tools[9] is: names must be distinct"#;
    assert_eq!(describe_list(list), expected);
}

#[test]
fn invalid_list_is_reported_in_one_line() {
    assert_eq!(describe_list("{}"), "the list is neither an array of tools nor an object with `tools`");
    assert_eq!(describe_list("{\"tools\": 3}"), "tools must be an array of tools");
    assert!(describe_list("[{\"name\": ]").starts_with("the list is no JSON: expected value at line 1"));
}

#[test]
fn hostile_sizes_are_refused() {
    let description = "x".repeat(super::DESCRIPTION_BYTES_MAX + 1);
    let tool = |rest: &str| format!("[{{\"name\":\"a\",{rest},\"input_schema\":{{}}}}]");
    let said = describe_list(&tool(&format!("\"description\":{description:?}")));
    assert_eq!(said, "tools[0].description is 32769 bytes long; at most 32768 are allowed");
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(describe_list(&tool(&format!("\"examples\":{deep}"))).contains("nested deeper"), "{deep}");
    let many = vec![r#"{"name":"a","input_schema":{}}"#; super::TOOLS_MAX + 1].join(",");
    assert_eq!(describe_list(&format!("[{many}]")), "tools are 1001; at most 1000 can be read at once");
    let twice = vec![r#"{"name":"a","input_schema":{}}"#; super::TOOLS_MAX].join(",");
    assert_eq!(describe_list(&format!("[{twice}]")).lines().count(), super::PROBLEMS_MAX);
    assert!(describe_list(&" ".repeat(super::LIST_BYTES_MAX + 1)).contains("at most 4194304 can be read"));
}

#[test]
fn lists_are_joined_and_a_name_may_stand_in_one_only() {
    let one = |source: &str, name: &str| {
        read(source, &format!("[\n{{\"name\":\"{name}\",\"input_schema\":{{}}}}]")).expect("a good list")
    };
    let mut list = one("a.json", "pay");
    list.append(one("b.json", "get")).expect("distinct");
    let problems = list.append(one("c.json", "pay")).expect_err("twice");
    let said = format!("{} {}", problems[0].field, problems[0].problem);
    assert_eq!(said, "line 2: pay is also a tool of a.json, line 2: names must be distinct");
    assert_eq!(list.tools.len(), 2);
}
