//! Recorded inputs and outputs of hosts (docs/hooks.md#recorded-outcomes).

use serde_json::{Value, json};

use super::{CallResult, Host, HostAnswer, HostCall, HostEvent, HostFile, texts::truncate_text};

fn event_text(event: &str, more: &Value) -> String {
    let mut sent = json!({
        "session_id": "s-1", "transcript_path": "/t.jsonl", "cwd": "/w", "hook_event_name": event,
        "prompt_id": "p-1", "permission_mode": "default", "a_new_field": {"of": ["a", "later", "version"]},
    });
    let more = more.as_object().cloned().unwrap_or_default();
    sent.as_object_mut().expect("an object").extend(more);
    sent.to_string()
}

fn event(host: Host, name: &str, more: &Value) -> HostEvent {
    host.read(&event_text(name, more)).unwrap_or_else(|unreadable| panic!("{name}: {unreadable:?}")).event
}

fn call(host: Host, name: &str, more: &Value) -> HostCall {
    match event(host, name, more) {
        HostEvent::Before(call) | HostEvent::After(call, _) => call,
        other => panic!("no call: {other:?}"),
    }
}

fn came(host: Host, name: &str, more: &Value) -> CallResult {
    match event(host, name, more) {
        HostEvent::After(_, came) => came,
        other => panic!("no outcome: {other:?}"),
    }
}

fn bash(more: &Value) -> Value {
    let mut bash = json!({"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {"command": "ls"}});
    bash.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    bash
}

#[test]
fn a_call_of_claude_code_is_read_with_its_folder_its_file_and_its_reason() {
    let text = event_text("PreToolUse", &bash(&json!({"tool_input": {"command": "ls", "description": "List files"}})));
    let seen = Host::ClaudeCode.read(&text).expect("readable");
    assert_eq!((seen.session.as_str(), seen.parent, seen.run.as_deref()), ("s-1", None, Some("p-1")));
    let HostEvent::Before(call) = seen.event else { panic!("a call") };
    assert_eq!(call.id.as_deref(), Some("toolu_1"));
    assert_eq!(Value::from(call.arguments.clone()), json!({"command": "ls", "cwd": "/w"}));
    assert_eq!(call.justification.as_deref(), Some("List files"));
    // Additions are removed, and removals restored.
    assert_eq!(
        Value::from(call.to_host_arguments(call.arguments.clone())),
        json!({"command": "ls", "description": "List files"})
    );

    let read = call_of_file("Read", &json!({"file_path": "/w/a.rs"}));
    assert_eq!((read.file, read.justification), (Some(HostFile::Read("/w/a.rs".to_owned())), None));
    let edited = call_of_file("NotebookEdit", &json!({"notebook_path": "n.ipynb"})).file;
    assert_eq!(edited, Some(HostFile::Written("/w/n.ipynb".to_owned())));
    assert_eq!(call_of_file("Grep", &json!({"path": "/w"})).file, None);
    assert_eq!(call_of_file("Read", &json!({})).file, None);
}

fn call_of_file(tool: &str, input: &Value) -> HostCall {
    call(Host::ClaudeCode, "PreToolUse", &json!({"tool_name": tool, "tool_use_id": "t", "tool_input": input}))
}

#[test]
fn a_sub_agent_is_a_session_below_its_own() {
    let text = event_text("PreToolUse", &bash(&json!({"agent_id": "a-7", "agent_type": "Explore"})));
    for host in [Host::ClaudeCode, Host::Codex] {
        let seen = host.read(&text).expect("readable");
        assert_eq!((seen.session.as_str(), seen.parent.as_deref()), ("s-1/a-7", Some("s-1")));
    }
}

#[test]
fn claude_code_result_is_the_outcome_of_the_call() {
    let host = Host::ClaudeCode;
    let after = |response: Value| came(host, "PostToolUse", &bash(&json!({"tool_response": response})));
    let success = |text: &str| CallResult::Success(text.to_owned());
    assert_eq!(after(json!({"stdout": "a\nb", "stderr": "", "interrupted": false})), success("a\nb"));
    assert_eq!(after(json!({"stdout": "a", "stderr": "warning", "isImage": false})), success("a\nwarning"));
    assert_eq!(after(json!({"stdout": "", "interrupted": true})), CallResult::Cancelled { not_started: false });
    assert_eq!(after(json!({"type": "text", "file": {"filePath": "/a", "content": "text"}})), success("text"));
    assert_eq!(after(json!("of an MCP server")), success("of an MCP server"));
    assert_eq!(after(json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])), success("a\nb"));
    assert_eq!(after(json!([{"type": "image"}])), success(r#"[{"type":"image"}]"#));
    assert_eq!(after(json!({"filePath": "/a", "originalFile": "long"})), success(r#"{"filePath":"/a"}"#));
    assert_eq!(after(Value::Null), success(""));

    let failure = |more: Value| came(host, "PostToolUseFailure", &bash(&more));
    let error = "Exit code 1\nno such test";
    assert_eq!(failure(json!({"error": error, "is_interrupt": false})), CallResult::Error(error.to_owned()));
    assert_eq!(failure(json!({"error": "", "is_interrupt": true})), CallResult::Cancelled { not_started: false });
    let denied = came(host, "PermissionDenied", &bash(&json!({"reason": "auto mode"})));
    assert_eq!(denied, CallResult::Cancelled { not_started: true });
}

#[test]
fn codex_shows_no_failure_so_that_a_text_tells_it() {
    let after = |text: &str| came(Host::Codex, "PostToolUse", &bash(&json!({"tool_response": text, "turn_id": "t"})));
    for text in ["", "ok", "3 files\nerror: in a log\ndone", "the error: none", "test result: FAILED. 1 failed"] {
        assert_eq!(after(text), CallResult::Success(text.to_owned()));
    }
    for text in [
        "fatal: not a git repository",
        "To github.com:a/b\n ! [rejected]\nerror: failed to push some refs",
        "bash: frobnicate: command not found\n",
        "cat: x: No such file or directory",
        "Traceback (most recent call last)\n  File\nValueError: x",
    ] {
        assert_eq!(after(text), CallResult::Error(text.to_owned()));
    }
}

#[test]
fn turns_ends_and_compactions_are_told_from_what_concerns_nobody() {
    for host in [Host::ClaudeCode, Host::Codex] {
        let of = |name: &str, more: Value| event(host, name, &more);
        assert_eq!(of("UserPromptSubmit", json!({"prompt": "go on"})), HostEvent::Prompted);
        assert_eq!(of("Stop", json!({"stop_hook_active": false})), HostEvent::TurnEnded);
        assert_eq!(of("SubagentStop", json!({"agent_id": "a"})), HostEvent::TurnEnded);
        assert_eq!(of("SessionEnd", json!({"reason": "exit"})), HostEvent::Ended);
        assert_eq!(of("SessionStart", json!({"source": "compact"})), HostEvent::Restarted);
        assert_eq!(of("SessionStart", json!({"source": "startup"})), HostEvent::Other);
        assert_eq!(of("PreCompact", json!({"trigger": "auto"})), HostEvent::Compacted { restarts: true });
        assert_eq!(of("FileChanged", json!({"path": "/w/a"})), HostEvent::Other);
    }
    for (name, is) in [
        ("BeforeAgent", HostEvent::Prompted),
        ("AfterAgent", HostEvent::TurnEnded),
        ("SessionEnd", HostEvent::Ended),
        ("PreCompress", HostEvent::Compacted { restarts: false }),
        ("BeforeModel", HostEvent::Other),
    ] {
        assert_eq!(event(Host::Gemini, name, &json!({})), is);
    }
    for (name, is) in [
        ("beforeSubmitPrompt", HostEvent::Prompted),
        ("stop", HostEvent::TurnEnded),
        ("sessionEnd", HostEvent::Ended),
        ("preCompact", HostEvent::Compacted { restarts: false }),
        ("afterAgentThought", HostEvent::Other),
    ] {
        assert_eq!(event(Host::Cursor, name, &json!({})), is);
    }
}

#[test]
fn gemini_and_cursor_have_names_of_their_own() {
    let shell = json!({"tool_name": "run_shell_command", "tool_input": {"command": "ls", "description": "look"}});
    let call_of = call(Host::Gemini, "BeforeTool", &shell);
    assert_eq!(Value::from(call_of.arguments), json!({"command": "ls", "dir_path": "/w"}));
    assert_eq!((call_of.id, call_of.justification.as_deref()), (None, Some("look")));
    let after = |response: Value| {
        came(Host::Gemini, "AfterTool", &json!({"tool_name": "t", "tool_input": {}, "tool_response": response}))
    };
    assert_eq!(after(json!({"llmContent": "found", "returnDisplay": "f"})), CallResult::Success("found".into()));
    assert_eq!(after(json!({"llmContent": [{"text": "a"}]})), CallResult::Success("a".into()));
    assert_eq!(
        after(json!({"llmContent": "", "error": {"message": "no", "type": "x"}})),
        CallResult::Error("no".into())
    );

    let text = r#"{"conversation_id":"c","session_id":"c","generation_id":"g","hook_event_name":"preToolUse",
        "workspace_roots":["/w"],"tool_name":"Read","tool_input":"{\"file_path\":\"a\"}","tool_use_id":"u"}"#;
    let seen = Host::Cursor.read(text).expect("readable");
    assert_eq!((seen.session.as_str(), seen.run.as_deref()), ("c", Some("g")));
    let HostEvent::Before(call_of) = seen.event else { panic!("a call") };
    assert_eq!((call_of.file, call_of.id.as_deref()), (Some(HostFile::Read("/w/a".to_owned())), Some("u")));
    let failure = |more: Value| came(Host::Cursor, "postToolUseFailure", &bash(&more));
    assert_eq!(failure(json!({"error_message": "x", "failure_type": "error"})), CallResult::Error("x".into()));
    let refused = CallResult::Cancelled { not_started: true };
    assert_eq!(failure(json!({"error_message": "x", "failure_type": "permission_denied"})), refused);
}

#[test]
fn a_call_that_cannot_be_read_is_told_from_an_event_that_concerns_nobody() {
    for (host, before) in [
        (Host::ClaudeCode, "PreToolUse"),
        (Host::Codex, "PreToolUse"),
        (Host::Gemini, "BeforeTool"),
        (Host::Cursor, "preToolUse"),
    ] {
        let is_before = |text: &str| match host.read(text) {
            Err(unreadable) => {
                assert!(!unreadable.problem.contains('\n'), "{unreadable:?}");
                Some(unreadable.is_before)
            }
            Ok(_) => None,
        };
        assert_eq!(is_before(""), Some(true));
        assert_eq!(is_before("null"), Some(true));
        assert_eq!(is_before("{}"), Some(true));
        assert_eq!(is_before(&format!(r#"{{"hook_event_name" : "{before}", "tool_inp"#)), Some(true));
        assert_eq!(is_before(&event_text(before, &json!({}))), Some(true), "no tool_name");
        assert_eq!(is_before(&format!(r#"{{"hook_event_name":"{before}","tool_name":"Bash"}}"#)), Some(true));
        assert_eq!(is_before(r#"{"hook_event_name":"Stop","#), Some(false));
        assert_eq!(is_before(&event_text(before, &json!({"tool_name": 7}))), Some(true));
        assert_eq!(is_before(&event_text("NobodyKnows", &json!({"tool_name": 7}))), Some(false));
        assert_eq!(is_before(&event_text("NobodyKnows", &json!({}))), None);
        assert_eq!(is_before(r#"{"hook_event_name":"NobodyKnows"}"#), None);
    }
}

fn render_output(host: Host, name: &str, answer: &HostAnswer) -> Value {
    let said = host.to_output(name, answer);
    assert_eq!((said.code, said.error.as_str()), (0, ""));
    if said.out.is_empty() { Value::Null } else { serde_json::from_str(&said.out).expect("JSON") }
}

#[test]
fn gemini_looks_before_each_request_whether_to_compress() {
    let compress = |trigger: &str| event(Host::Gemini, "PreCompress", &json!({"trigger": trigger}));
    assert_eq!(compress("auto"), HostEvent::Other);
    assert_eq!(compress("manual"), HostEvent::Compacted { restarts: false });
}

#[test]
fn permission_is_said_by_saying_nothing() {
    let allowed = HostAnswer::Run { grant: false, context: None, arguments: None };
    for host in Host::ALL {
        for answer in [&HostAnswer::Nothing, &allowed] {
            assert_eq!(render_output(host, host.before(), answer), Value::Null, "{host:?}");
        }
    }
    let granted = HostAnswer::Run { grant: true, context: Some("warning".into()), arguments: None };
    // Codex fails open on an allow that changes nothing.
    let mind = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": "warning"}});
    assert_eq!(render_output(Host::Codex, "PreToolUse", &granted), mind);
    assert_eq!(render_output(Host::Gemini, "BeforeTool", &granted), Value::Null);
    assert_eq!(render_output(Host::Cursor, "preToolUse", &granted), json!({"permission": "allow"}));
    let claude = json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "allow", "additionalContext": "warning"}});
    assert_eq!(render_output(Host::ClaudeCode, "PreToolUse", &granted), claude);
    let warned = HostAnswer::Run { grant: false, context: Some("warning".into()), arguments: None };
    let claude = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": "warning"}});
    assert_eq!(render_output(Host::ClaudeCode, "PreToolUse", &warned), claude);
}

#[test]
fn a_refusal_is_each_hosts_own() {
    let refused = HostAnswer::Refuse("no".into());
    // A prompt is opened where it holds the tool back; elsewhere the word would let it run.
    let asked = HostAnswer::Ask("no".into());
    let prompt = json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": "no"}});
    assert_eq!(render_output(Host::ClaudeCode, "PreToolUse", &asked), prompt);
    for host in [Host::Codex, Host::Gemini, Host::Cursor] {
        assert!(!host.has_prompt());
        assert_eq!(render_output(host, host.before(), &asked), render_output(host, host.before(), &refused));
    }
    let denied = json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}});
    assert_eq!(render_output(Host::ClaudeCode, "PreToolUse", &refused), denied);
    assert_eq!(render_output(Host::Codex, "PreToolUse", &refused), denied);
    assert_eq!(render_output(Host::Gemini, "BeforeTool", &refused), json!({"decision": "deny", "reason": "no"}));
    let cursor = json!({"permission": "deny", "user_message": "no", "agent_message": "no"});
    assert_eq!(render_output(Host::Cursor, "preToolUse", &refused), cursor);
}

#[test]
fn mended_arguments_and_context_go_where_they_are_heard() {
    let Value::Object(arguments) = json!({"n": 1}) else { unreachable!() };
    let mended = HostAnswer::Run { grant: false, context: None, arguments: Some(arguments) };
    let of = |host: Host| render_output(host, host.before(), &mended);
    let output = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"n": 1}}});
    assert_eq!(of(Host::ClaudeCode), output);
    assert_eq!(of(Host::Codex)["hookSpecificOutput"]["permissionDecision"], "allow");
    assert_eq!(of(Host::Gemini), json!({"hookSpecificOutput": {"tool_input": {"n": 1}}}));

    let told = HostAnswer::Tell("mind".into());
    let context = |name: &str| json!({"hookSpecificOutput": {"hookEventName": name, "additionalContext": "mind"}});
    for (host, name) in [
        (Host::ClaudeCode, "SessionStart"),
        (Host::ClaudeCode, "PostToolUseFailure"),
        (Host::Codex, "SessionStart"),
        (Host::Codex, "PostToolUse"),
        (Host::Gemini, "BeforeAgent"),
        (Host::Gemini, "AfterTool"),
    ] {
        assert_eq!(render_output(host, name, &told), context(name), "{host:?}");
    }
    assert_eq!(render_output(Host::Cursor, "postToolUse", &told), json!({"additional_context": "mind"}));
    for (host, name) in
        [(Host::ClaudeCode, "Stop"), (Host::Codex, "Stop"), (Host::Gemini, "AfterAgent"), (Host::Cursor, "stop")]
    {
        assert_eq!(render_output(host, name, &told), Value::Null, "{host:?}");
    }
}

fn refusal(host: Host, tool_result_json: &str) -> String {
    host.refusal("s-1/a 7", "mcp__t__drop", tool_result_json)
}

#[test]
fn codex_output_is_called_neither_success_nor_failure() {
    let told = |host: Host, result: &str| {
        refusal(host, &json!({"message": "Bash was not run.", "previous_result": result}).to_string())
    };
    let text = "Bash was not run.\nTake the following output as the result of this call and go on. Only its text tells \
                whether the earlier call failed.";
    assert_eq!(told(Host::Codex, "2 failed"), format!("{text}\nprevious_result:\n2 failed"));
    assert_eq!(told(Host::Codex, ""), format!("{text}\nprevious_result: it printed nothing."));
    assert!(told(Host::ClaudeCode, "2 passed").contains("This is no error."));
    let of_server = |is_error: bool| {
        let response = json!({"content": [{"type": "text", "text": "no such page"}], "isError": is_error});
        came(Host::Codex, "PostToolUse", &bash(&json!({"tool_name": "mcp__t__look", "tool_response": response})))
    };
    assert_eq!(of_server(true), CallResult::Error("no such page".to_owned()));
    assert!(matches!(of_server(false), CallResult::Success(_)));
}

#[test]
fn user_is_told_the_commands_that_lift_a_limit() {
    let told = |verdict: Value| refusal(Host::Gemini, &verdict.to_string());
    for (verdict, command) in [
        (json!({"status": "approval_required", "approval_id": "apr_1"}), "`callgate approvals approve apr_1`"),
        (json!({"status": "session_halted"}), "`callgate sessions resume`"),
        (json!({"status": "grant_exceeded"}), "`callgate grants create 's-1/a 7' mcp__t__drop 1`"),
    ] {
        let text = told(verdict);
        let line = text.lines().find(|line| line.contains(command)).unwrap_or_else(|| panic!("{text}"));
        assert!(line.starts_with("For the user alone, in a terminal: "), "{line}");
    }
    assert!(told(json!({"message": "m", "status": "circuit_break"})).ends_with("your next message lifts this."));
    assert_eq!(told(json!({"message": "m", "status": "tool_denied"})), "m");
}

#[test]
fn an_earlier_result_is_handed_over_as_the_result() {
    let verdict = json!({
        "status": "duplicate_call_blocked", "message": "send_mail was not run again. Its result is in previous_result.",
        "retryable": false, "next_action_hint": "Go on with it.", "previous_result": "sent to a@b.c\nid 7",
    });
    let told = refusal(Host::ClaudeCode, &verdict.to_string());
    let text = "send_mail was not run again. Its result is in previous_result.\nGo on with it.\nThis is no error. Take \
                the following as the result of this call and go on.\nprevious_result:\nsent to a@b.c\nid 7";
    assert_eq!(told, text);
    let empty = json!({"message": "Done.", "previous_result": ""});
    assert!(
        refusal(Host::ClaudeCode, &empty.to_string()).ends_with("\nprevious_result: it succeeded and gave no text.")
    );
    let object = json!({"message": "Done.", "previous_result": {"id": 7}});
    assert!(refusal(Host::ClaudeCode, &object.to_string()).ends_with("\nprevious_result:\n{\"id\":7}"));
}

#[test]
fn a_refusal_tells_what_is_wrong_and_what_to_do() {
    let verdict = json!({
        "message": "pay was not run.", "errors": [{"field": "amount", "message": "is missing"}],
        "next_action_hint": "Ask the user.", "suggested_next": ["get_order", "list_orders"],
    });
    let text = "pay was not run.\namount: is missing\nAsk the user.\nWhat may help: get_order, list_orders";
    assert_eq!(refusal(Host::ClaudeCode, &verdict.to_string()), text);
    assert_eq!(refusal(Host::ClaudeCode, "no JSON"), "no JSON");
}

#[test]
fn a_text_is_cut_to_what_hosts_hand_on() {
    let long = json!({"message": "Done.", "previous_result": "😀".repeat(8_000)}).to_string();
    let told = refusal(Host::ClaudeCode, &long);
    let units: usize = told.chars().map(char::len_utf16).sum();
    assert!((super::CHARS_MAX - 2..=super::CHARS_MAX).contains(&units), "{units}");
    assert!(told.ends_with("hook's answer]"));
    assert_eq!(truncate_text(&"x".repeat(super::CHARS_MAX)).len(), super::CHARS_MAX);
}

#[test]
fn approved_arguments_are_handed_on_whole_or_not_at_all() {
    let told = |arguments: &str| {
        refusal(Host::ClaudeCode, &format!(r#"{{"message":"Call pay again.","approved_arguments":{arguments}}}"#))
    };
    assert_eq!(told(r#"{"amount":1.50}"#), "Call pay again.\napproved_arguments: {\"amount\":1.50}");
    let long = told(&format!(r#"{{"note":"{}"}}"#, "x".repeat(super::texts::CHARS_MAX)));
    assert!(long.contains("callgate approvals show") && !long.contains("xxx"), "{long}");
}
