use super::*;

const CONFIG: &str = r#"{
  // Mine.
  "theme": "dark",
  "mcpServers": {
    "fs": {
      "command": "npx",
      "args": [
        "-y", // quiet
        "@modelcontextprotocol/server-filesystem"
      ],
      "env": {"A": "1"},
    },
    "one":{"args":["x"],"command":"one"},
    "bare": {"command": "\u0062are"},
    "empty": {"command": "empty", "args": []},
    "spaced": {"command": "empty", "args": [ ]},
    "dense":{"command":"empty","args":[]},
    "far": {"type": "http", "url": "https://example.com/mcp"},
    "keyed": {
      "httpUrl" :"https:\/\/example.com/mcp", // with a key
      "headers": {"Authorization": "Bearer ${TOKEN}", "X-Team":"a"}, "timeout": 9
    },
    "old": {"type": "sse", "url": "https://example.com/sse"},
    "signed": {"url": "https://example.com/mcp", "oauth": {"clientId": "c"}}
  }
}
"#;

fn wrap_config(text: &str) -> ConfigChange {
    wrap(text, "callgate", &["--fail-open".to_owned(), "reads".to_owned()], |_| None).expect("a config")
}

#[test]
fn each_server_runs_behind_the_proxy_and_all_else_stays() {
    let changed = wrap_config(CONFIG);
    assert_eq!(changed.servers, ["fs", "one", "bare", "empty", "spaced", "dense", "far", "keyed"]);
    let [(old, transport), (signed, settings)] = changed.left.as_slice() else { panic!("{:?}", changed.left) };
    assert!(old == "old" && transport.contains("2024-11-05"), "{transport}");
    assert!(signed == "signed" && settings.contains("settings that the proxy does not know"), "{settings}");
    // A server with a URL is started as a command; its headers go where other users do not see them.
    let far = r#"    "far": {"type": "stdio", "command": "callgate", "args": [FAR]},
    "keyed": {
      "command" :"callgate", "args" :[KEYED], // with a key
      "env": {"CALLGATE_HEADER_Authorization": "Bearer ${TOKEN}", "CALLGATE_HEADER_X-Team":"a"}, "timeout": 9
    },
"#;
    let proxy = r#""mcp-proxy", "--server-name""#;
    let words = |name: &str, restores: &str, url: &str| {
        format!(r#"{proxy}, "{name}", "--fail-open", "reads", "--stdio", "--restores", "{restores}", {url}"#)
    };
    let far = far.replace("FAR", &words("far", "url:http", r#""--url", "https://example.com/mcp""#));
    let far = far.replace("KEYED", &words("keyed", "httpUrl", r#""--url", "https:\/\/example.com/mcp""#));
    assert!(changed.text.contains(&far), "{}", changed.text);
    let fs = r#"    "fs": {
      "command": "callgate",
      "args": ["mcp-proxy", "--server-name", "fs", "--fail-open", "reads", "--", "npx",
        "-y", // quiet
        "@modelcontextprotocol/server-filesystem"
      ],
      "env": {"A": "1"},
    },
"#;
    assert!(changed.text.contains(fs), "{}", changed.text);
    let value = jsonc_parser::parse_to_ast(&changed.text, &CollectOptions::default(), &ParseOptions::default());
    let value = value.expect("JSON").value.expect("a value");
    let servers = value.as_object().and_then(|root| root.get_object("mcpServers")).expect("servers");
    let words = |name: &str| {
        let args = servers.get_object(name).and_then(|server| server.get_array("args")).expect("arguments");
        let words = args.elements.iter().filter_map(|word| word.as_string_lit());
        words.map(|word| word.value.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words("one"), "mcp-proxy --server-name one --fail-open reads -- one x");
    assert_eq!(words("bare"), "mcp-proxy --server-name bare --fail-open reads -- bare");
    assert_eq!(words("empty"), "mcp-proxy --server-name empty --fail-open reads -- empty");
}

#[test]
fn the_way_back_gives_it_byte_for_byte_and_both_are_done_once() {
    let changed = wrap_config(CONFIG);
    let again = wrap_config(&changed.text);
    assert_eq!((again.text.as_str(), again.servers.len()), (changed.text.as_str(), 0));
    // Other options replace those of before, with the same way back.
    let other = wrap(&changed.text, "/opt/callgate", &["--server".to_owned(), "https://a".to_owned()], |_| None)
        .expect("a config");
    assert_eq!(other.servers, changed.servers);
    assert!(other.text.contains(r#"["mcp-proxy", "--server-name", "fs", "--server", "https://a", "--", "npx","#));
    assert_eq!(
        other.text,
        wrap(CONFIG, "/opt/callgate", &["--server".to_owned(), "https://a".to_owned()], |_| None)
            .expect("a config")
            .text
    );
    assert_eq!(unwrap(&other.text).expect("a config").text, CONFIG);
    let back = unwrap(&changed.text).expect("a config");
    assert_eq!(back.text, CONFIG);
    assert_eq!(back.servers, changed.servers);
    assert_eq!(unwrap(CONFIG).expect("a config").servers.len(), 0);
    let crlf = CONFIG.replace('\n', "\r\n");
    assert_eq!(unwrap(&wrap_config(&crlf).text).expect("a config").text, crlf);
}

#[test]
fn server_with_an_objection_stays() {
    assert_eq!(list_addresses(CONFIG).expect("a config")[0], "https://example.com/mcp");
    let changed =
        wrap(CONFIG, "callgate", &[], |url| (url == "https://example.com/mcp").then_some("no")).expect("a config");
    let far = changed.left.iter().find(|(name, _)| name == "far");
    assert_eq!(far, Some(&("far".to_owned(), "no")));
    assert_eq!(unwrap(&changed.text).expect("a config").text, CONFIG);
}

#[test]
fn invalid_config_is_reported() {
    assert_eq!(unwrap("[]"), Err("it is not a JSON object".to_owned()));
    assert_eq!(unwrap("{}"), Err("it has no object \"mcpServers\"".to_owned()));
    assert!(wrap(r#"{"mcpServers": {"#, "callgate", &[], |_| None).is_err());
}
