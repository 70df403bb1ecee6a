//! Settings as texts: additions, removals and rejections.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{
    change::{FileBackup, with, without},
    host::{SettingsFolders, SettingsScope},
    plan::{self, HookTransport, SettingsPlan, is_ours},
    sample::{HookEffect, Sample, of_command, of_http},
    settings::HostSettings,
};
use crate::hosts::Host;
use callgate_core::domain::digest;

fn plan(host: Host) -> SettingsPlan {
    let args = ["--agent", "desk one"].map(str::to_owned).to_vec();
    SettingsPlan::new(host, &HookTransport::Command { program: "/opt/my tools/callgate".to_owned(), args })
}

fn install_plan(plan: &SettingsPlan, text: Option<&str>) -> (String, FileBackup) {
    let (before, after) = with(plan, text, None).expect("readable").expect("a change");
    let memory =
        FileBackup { file: String::new(), before, after: digest::of_text(&after), has_made_folder: text.is_none() };
    (after, memory)
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Settings that people have, with comments where a host reads them.
const WRITTEN: [&str; 8] = [
    "{}",
    "{\n}\n",
    "",
    "{\"zeta\": 1, \"alpha\": [1,2], \"hooks\": {}}",
    "{\n    \"model\": \"opus\",\n    \"env\": {\"B\": \"2\", \"A\": \"1\"}\n}",
    "{\r\n\t\"hooks\": {\r\n\t\t\"Notification\": []\r\n\t}\r\n}\r\n",
    r#"{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"lint"}]}]},"a":1e2}"#,
    r#"{
  "hooks": {
    "SessionEnd": [
      { "hooks": [ { "type": "command", "command": "bye" } ] }
    ]
  },
  "last": null
}"#,
];

#[test]
fn uninstall_restores_every_byte() {
    for host in Host::ALL {
        let plan = plan(host);
        for text in [None].into_iter().chain(WRITTEN.map(Some)) {
            let (after, memory) = install_plan(&plan, text);
            assert!(HostSettings::read(host, &after).expect("readable").holds(&plan), "{after}");
            assert!(with(&plan, Some(&after), Some(&memory)).expect("readable").is_none(), "twice:\n{after}");
            let back = without(host, Some(&after), Some(&memory)).expect("readable");
            assert_eq!(back.as_deref(), text, "{host:?}");
        }
    }
}

#[test]
fn settings_of_others_keep_their_order() {
    for host in Host::ALL {
        for text in WRITTEN {
            let (after, _) = install_plan(&plan(host), Some(text));
            // Another program rewrites the file, and the memory of the original is lost.
            for text in [after.clone(), after.replace('\n', "\n ")] {
                let left = without(host, Some(&text), None).expect("readable").expect("a file");
                assert!(!left.contains("callgate"), "{left}");
                let before = if text.trim().is_empty() { "{}" } else { text.as_str() };
                let names = |text: &str| {
                    ["zeta", "alpha", "model", "env", "last", "lint", "bye"].map(|name| text.contains(name))
                };
                assert_eq!(names(&left), names(before), "{left}");
            }
        }
        let (after, _) = install_plan(&plan(host), Some(WRITTEN[3]));
        assert!(after.find("zeta") < after.find("alpha") && after.find("alpha") < after.find("\"hooks\""), "{after}");
    }
}

#[test]
fn foreign_hooks_keep_their_places_and_an_older_installation_is_replaced() {
    let host = Host::ClaudeCode;
    let (first, memory) = install_plan(&plan(host), Some(WRITTEN[6]));
    let lists = value(&first);
    let list = lists["hooks"]["PreToolUse"].as_array().expect("a list");
    assert_eq!((list.len(), &list[0]["hooks"][0]["command"]), (2, &Value::from("lint")));

    let other = SettingsPlan::new(
        host,
        &HookTransport::Http { url: "https://plane/hooks/claude-code".to_owned(), shows_token: true },
    );
    let (before, second) = with(&other, Some(&first), Some(&memory)).expect("readable").expect("a change");
    assert_eq!(before.as_deref(), Some(WRITTEN[6]));
    let settings = HostSettings::read(host, &second).expect("readable");
    assert!(settings.holds(&other) && !second.contains("my tools") && !second.contains("SessionStart"), "{second}");
    assert_eq!(settings.handlers().iter().filter(|handler| !handler.is_ours).count(), 1);

    // A group with a foreign hook stays.
    let shared = first.replacen("\"hooks\": [\n", "\"hooks\": [\n {\"command\": \"theirs\"},\n", 1);
    assert!(shared.contains("theirs"), "{shared}");
    let left = without(host, Some(&shared), Some(&memory)).expect("readable").expect("a file");
    assert!(left.contains("theirs") && left.contains("lint") && !left.contains("callgate"), "{left}");
}

#[test]
fn only_a_handler_that_callgate_would_write_is_taken_for_its_own() {
    let is_ours = |host, text: &str| is_ours(host, &value(text));
    for ours in [
        r#"{"command": "/old/place/callgate", "args": ["hook", "claude-code"]}"#,
        r#"{"command": "'/a b/callgate' hook claude-code --timeout 30"}"#,
        r#"{"command": "/old/place/callgate-hook", "args": ["claude-code"]}"#,
        r#"{"command": "'/a b/callgate-hook' claude-code --timeout 30"}"#,
        r#"{"type": "http", "url": "http://127.0.0.1:7600/hooks/claude-code"}"#,
    ] {
        assert!(is_ours(Host::ClaudeCode, ours), "{ours}");
        assert!(!is_ours(Host::Gemini, ours), "{ours}");
    }
    for foreign in [
        r#"{"command": "/usr/bin/tollgate", "args": ["hook", "claude-code"]}"#,
        r#"{"command": "/usr/bin/callgate", "args": ["report"]}"#,
        r#"{"command": "callgate hook claude-codex"}"#,
        r#"{"command": "callgate claude-code"}"#,
        r#"{"command": "callgate-hook hook claude-code"}"#,
        r#"{"command": "/usr/bin/callgate-hook", "args": ["codex"]}"#,
        r#"{"command": "mycallgate hook claude-code"}"#,
        r#"{"command": "echo callgate hook claude-code"}"#,
        r#"{"url": "http://127.0.0.1:7600/hooks/others"}"#,
        r#"{"type": "prompt", "prompt": "callgate hook claude-code"}"#,
        r#"[1]"#,
    ] {
        assert!(!is_ours(Host::ClaudeCode, foreign), "{foreign}");
    }
}

#[test]
fn comments_stay_where_a_host_reads_them() {
    let text = "{\n  // mine\n  \"ui\": 1, /* and */\n  \"hooks\": { // these\n    \"BeforeTool\": []\n  }\n}\n";
    let (after, memory) = install_plan(&plan(Host::Gemini), Some(text));
    for comment in ["// mine", "/* and */", "// these"] {
        assert!(after.contains(comment), "{after}");
    }
    assert_eq!(without(Host::Gemini, Some(&after), Some(&memory)).expect("readable").as_deref(), Some(text));
    let left = without(Host::Gemini, Some(&after), None).expect("readable").expect("a file");
    assert!(left.contains("// mine") && left.contains("/* and */") && !left.contains("callgate"), "{left}");
    // Claude Code was seen to load nothing of a file with a comment.
    let error = with(&plan(Host::ClaudeCode), Some(text), None).expect_err("a comment");
    assert!(error.to_string().contains("line 2 column 3; Claude Code loads no hook"), "{error}");
}

#[test]
fn unreadable_settings_are_refused_with_their_position() {
    for (text, expected) in [
        ("{\n  \"a\": 1,\n}\n", "line 3 column 1"),
        ("[]", "the settings are not an object"),
        ("{\"hooks\": []}", "hooks: is not an object"),
        ("{\"hooks\": {\"PreToolUse\": {}}}", "hooks.PreToolUse: is not a list"),
        ("{\"hooks\": {}, \"hooks\": {}}", "hooks: occurs 2 times"),
        ("{\"hooks\": {\"Stop\": [], \"Stop\": []}}", "Stop: occurs 2 times"),
        ("{\"a\": 1", "line 1 column 7"),
        ("\u{feff}{}", "line 1 column 1"),
    ] {
        let error = with(&plan(Host::ClaudeCode), Some(text), None).expect_err(text);
        assert!(error.to_string().contains(expected), "{text} was refused with {error}");
        if !text.contains("Tool") {
            let error = with(&plan(Host::Gemini), Some(text), None).err().map(|error| error.to_string());
            assert!(error.is_some() || text.contains("Stop"), "Gemini took {text}");
        }
    }
}

#[test]
fn a_handler_is_written_as_its_host_reads_it() {
    let guard = |host: Host, event: &str| {
        let (text, _) = install_plan(&plan(host), None);
        let entry = value(&text)["hooks"][event][0].clone();
        if host == Host::Cursor { entry } else { entry["hooks"][0].clone() }
    };
    let claude = guard(Host::ClaudeCode, "PreToolUse");
    assert_eq!(claude["command"], "/opt/my tools/callgate");
    let args: Vec<&str> = claude["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert_eq!(args, ["hook", "claude-code", "--agent", "desk one", "--timeout", "600"]);
    assert_eq!((&claude["timeout"], &claude["onFailure"]), (&600.into(), &"block".into()));
    let small = HookTransport::Command { program: "/opt/callgate-hook".to_owned(), args: Vec::new() };
    for (_, json) in SettingsPlan::new(Host::Codex, &small).handlers {
        let line = plan::value(&json)["command"].clone();
        assert!(line.as_str().is_some_and(|line| line.starts_with("/opt/callgate-hook codex ")), "{line}");
    }
    let line = "'/opt/my tools/callgate' hook codex --agent 'desk one' --timeout 600";
    let codex = guard(Host::Codex, "PreToolUse");
    assert_eq!((&codex["command"], &codex["timeout"]), (&line.into(), &600.into()));
    let gemini = guard(Host::Gemini, "BeforeTool");
    assert_eq!((&gemini["command"], &gemini["timeout"]), (&line.replace("codex", "gemini").into(), &600_000.into()));
    let cursor = guard(Host::Cursor, "preToolUse");
    assert_eq!((&cursor["command"], &cursor["failClosed"]), (&line.replace("codex", "cursor").into(), &true.into()));
    assert_eq!(value(&install_plan(&plan(Host::Cursor), None).0)["version"], 1);
    assert_eq!(guard(Host::ClaudeCode, "Stop")["onFailure"], Value::Null);
}

#[test]
fn a_token_is_named_and_never_written() {
    let plan = |shows_token| {
        let url = "https://plane/hooks/claude-code".to_owned();
        install_plan(&SettingsPlan::new(Host::ClaudeCode, &HookTransport::Http { url, shows_token }), None).0
    };
    let handler = value(&plan(true))["hooks"]["PreToolUse"][0]["hooks"][0].clone();
    assert_eq!(handler["headers"]["Authorization"], "Bearer $CALLGATE_TOKEN");
    assert_eq!((&handler["allowedEnvVars"][0], &handler["onFailure"]), (&"CALLGATE_TOKEN".into(), &"block".into()));
    assert!(!plan(false).contains("CALLGATE_TOKEN"));
}

#[test]
fn hook_output_is_read_as_its_host_reads_it() {
    let deny = |host, out: &str| of_command(host, Some(0), out, "");
    let refused = |why: &str| HookEffect::Refused(why.to_owned());
    let claude = r#"{"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no\nmore"
    }}"#;
    assert_eq!(deny(Host::ClaudeCode, claude), refused("no more"));
    assert_eq!(deny(Host::Codex, claude), refused("no more"));
    assert_eq!(deny(Host::Gemini, r#"{"decision":"deny","reason":"no"}"#), refused("no"));
    assert_eq!(deny(Host::Cursor, r#"{"permission":"ask","agent_message":"who?"}"#), refused("who?"));
    assert_eq!(of_http(200, claude), refused("no more"));
    for out in ["", "{}\n"] {
        assert_eq!(deny(Host::Gemini, out), HookEffect::Allowed);
    }
    assert_eq!(of_command(Host::Codex, Some(2), "", "callgate: no server\n"), refused("callgate: no server"));
    for broken in [
        of_command(Host::ClaudeCode, Some(1), "", "x"),
        of_command(Host::ClaudeCode, None, "", ""),
        deny(Host::Gemini, "all is well"),
        of_http(404, ""),
    ] {
        assert!(matches!(broken, HookEffect::Broken(_)), "{broken:?}");
    }
}

#[test]
fn every_host_is_told_of_the_same_call_in_its_own_words() {
    for host in Host::ALL {
        let sample = Sample { host, session: "s1", file: Path::new("/etc/x"), folder: Path::new("/tmp") };
        let heard = host.facts().events;
        for (event, text) in sample.inputs() {
            assert!(heard.iter().any(|known| known.name == event), "{host:?} has no hook for {event}");
            assert!(text.contains("\"s1\"") && text.contains(event), "{text}");
        }
    }
}

#[test]
fn folders_are_where_their_variables_say() {
    let mut places = SettingsFolders {
        home: PathBuf::from("/home/u"),
        project: PathBuf::from("/src/p"),
        claude: None,
        codex: None,
        gemini: None,
    };
    let file = |places: &SettingsFolders, host, scope| places.file(host, scope).display().to_string();
    assert_eq!(file(&places, Host::ClaudeCode, SettingsScope::User), "/home/u/.claude/settings.json");
    assert_eq!(file(&places, Host::Gemini, SettingsScope::Project), "/src/p/.gemini/settings.json");
    (places.claude, places.codex) = (Some("/c".into()), Some("/x".into()));
    places.gemini = Some("/g".into());
    assert_eq!(file(&places, Host::ClaudeCode, SettingsScope::User), "/c/settings.json");
    assert_eq!(file(&places, Host::Codex, SettingsScope::User), "/x/hooks.json");
    assert_eq!(file(&places, Host::Gemini, SettingsScope::User), "/g/.gemini/settings.json");
    assert_eq!(file(&places, Host::Codex, SettingsScope::Project), "/src/p/.codex/hooks.json");
    assert_eq!(file(&places, Host::Cursor, SettingsScope::User), "/home/u/.cursor/hooks.json");
}
