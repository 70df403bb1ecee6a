//! `callgate hook` as coding agents run it: their JSON on standard input, their dialect on standard output, a server
//! and its database behind it.

mod lost;
mod people;

use std::{
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Child};

use crate::{
    common::{in_time, until},
    server::{Home, Server, clean, path, program, ran},
};

const POLICY: &str = "policy_engine:
  presets: [coding_agents]
  unknown_tools: allow
  authorization:
    tiers:
      - {name: money, pattern: 'mcp__bank__*', action: hitl}
      - {name: signs, pattern: 'mcp__desk__sign|Write', action: hitl, approver: host}
      - {name: others, pattern: '*', action: allowlist}
  tool_schemas:
    mcp__mail__send: {effect: write}
    mcp__bank__pay: {effect: write}
    mcp__desk__sign: {effect: write}
";

/// A server, and an agent's machine.
struct Desk {
    url: String,
    server: Option<Server>,
    home: Home,
}

impl Desk {
    async fn open() -> Self {
        let home = Home::with_cluster().await;
        let policy = home.file("policy.yaml", POLICY);
        let server = Server::start(&home, &["--policy", path(&policy)]);
        Self { url: format!("http://{}", server.address), server: Some(server), home }
    }

    /// Starts the hook, which has read its event.
    async fn starts(&self, args: &[&str], text: &str) -> Child {
        // Half of the hosts have the small program.
        let is_small = matches!(args, ["gemini" | "cursor", ..]);
        let program = if is_small { clean(env!("CARGO_BIN_EXE_callgate-hook")) } else { program() };
        let mut command = tokio::process::Command::from(program);
        command
            .args((!is_small).then_some("hook"))
            .args(args)
            .args(["--server", &self.url])
            .env("XDG_STATE_HOME", self.state());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it runs");
        let mut stdin = child.stdin.take().expect("piped");
        // It may end before it has read all.
        let _ = stdin.write_all(text.as_bytes()).await;
        child
    }

    /// Runs the hook; gives its exit code, its output and its errors.
    async fn hook(&self, args: &[&str], text: &str) -> (i32, String, String) {
        let child = self.starts(args, text).await;
        let Output { status, stdout, stderr } = in_time("an end", child.wait_with_output()).await.expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (status.code().expect("no signal"), text(&stdout), text(&stderr))
    }

    fn state(&self) -> PathBuf {
        self.home.data_dir().join("state")
    }

    fn agent<'a>(&'a self, host: &'static str, session: &'static str) -> Agent<'a> {
        Agent { desk: self, host, session, args: Vec::new() }
    }

    /// Runs a command; returns its output.
    async fn does(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').chain(["--server", &self.url]).collect();
        let (code, said, error) = ran(&words).await;
        assert_eq!(code, Some(0), "{line}: {error}");
        said
    }

    /// Kills the server, and waits until its port takes nothing.
    async fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
        let address = self.url.trim_start_matches("http://").to_owned();
        until("silence", async || tokio::net::TcpStream::connect(&address).await.is_err()).await;
    }
}

/// An agent in one session of a host, which speaks the host's names.
#[derive(Clone)]
struct Agent<'a> {
    desk: &'a Desk,
    host: &'static str,
    session: &'static str,
    args: Vec<&'static str>,
}

impl Agent<'_> {
    /// Sends the hook an event; returns its answer, null for none.
    async fn tells(&self, event: &str, more: Value) -> Value {
        let (code, out, error) = self.runs(event, more).await;
        assert_eq!((code, error.as_str()), (0, ""), "{event}");
        if out.is_empty() { Value::Null } else { serde_json::from_str(&out).expect("JSON") }
    }

    async fn runs(&self, event: &str, more: Value) -> (i32, String, String) {
        let args = [&[self.host][..], &self.args].concat();
        self.desk.hook(&args, &self.event(event, more)).await
    }

    fn event(&self, event: &str, more: Value) -> String {
        let mut input = json!({"hook_event_name": event, "session_id": self.session, "cwd": "/w"});
        if self.host == "cursor" {
            input = json!({"hook_event_name": event, "conversation_id": self.session, "workspace_roots": ["/w"]});
        }
        input.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        input.to_string()
    }

    /// Asks for a call; gives why it must not run, if it must not.
    async fn asks(&self, id: &str, tool: &str, input: Value) -> Option<String> {
        let call = json!({"tool_name": tool, "tool_input": input, "tool_use_id": id});
        match self.host {
            "gemini" => {
                let heard = self.tells("BeforeTool", json!({"tool_name": tool, "tool_input": input})).await;
                (heard["decision"] == "deny").then(|| heard["reason"].as_str().expect("a reason").to_owned())
            }
            "cursor" => {
                let heard = self.tells("preToolUse", call).await;
                (heard["permission"] == "deny").then(|| heard["agent_message"].as_str().expect("text").to_owned())
            }
            _ => {
                let heard = &self.tells("PreToolUse", call).await["hookSpecificOutput"];
                let reason = || heard["permissionDecisionReason"].as_str().expect("a reason").to_owned();
                (heard["permissionDecision"] == "deny").then(reason)
            }
        }
    }

    /// Reports the result of a call.
    async fn gave(&self, id: &str, tool: &str, input: Value, result: &str) {
        let (event, field, response) = match self.host {
            "gemini" => ("AfterTool", "tool_response", json!({"llmContent": result, "returnDisplay": ""})),
            "cursor" => ("postToolUse", "tool_output", json!(result)),
            _ => ("PostToolUse", "tool_response", json!(result)),
        };
        let mut more = json!({"tool_name": tool, "tool_input": input, field: response});
        if self.host != "gemini" {
            more["tool_use_id"] = id.into();
        }
        self.tells(event, more).await;
    }
}

fn mail(to: &str) -> Value {
    json!({"to": to, "text": "Hello"})
}

const MAIL: &str = "mcp__mail__send";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_is_sent_once_and_its_result_is_handed_over_by_every_host() {
    let desk = Desk::open().await;
    for (host, session) in [("claude-code", "s1"), ("codex", "s2"), ("gemini", "s3"), ("cursor", "s4")] {
        let agent = desk.agent(host, session);
        assert_eq!(agent.asks("t1", MAIL, mail("a@b.c")).await, None, "{host}");
        // While it runs it is not run a second time, and the same id is the same call.
        agent.gave("t1", MAIL, mail("a@b.c"), "sent as message 7").await;
        let why = agent.asks("t2", MAIL, mail("a@b.c")).await.expect("refused");
        assert!(why.contains("previous_result:\nsent as message 7"), "{why}");
        assert!(why.contains("as the result of this call and go on."), "{why}");
        assert_eq!(agent.asks("t3", MAIL, mail("d@b.c")).await, None, "{host}: another mail");
        agent.gave("t3", MAIL, mail("d@b.c"), "sent as message 8").await;
        let state = desk.does(&format!("sessions show {session}")).await;
        assert!(state.contains("message 7") && state.contains("message 8"), "{state}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sub_agent_shares_what_was_done_and_runs_are_the_users_turns() {
    let desk = Desk::open().await;
    let agent = desk.agent("claude-code", "s1");
    assert_eq!(agent.asks("t1", MAIL, mail("a")).await, None);
    agent.gave("t1", MAIL, mail("a"), "sent").await;
    let below = json!({"tool_name": MAIL, "tool_input": mail("a"), "tool_use_id": "t2", "agent_id": "explorer"});
    let heard = agent.tells("PreToolUse", below).await;
    assert_eq!(heard["hookSpecificOutput"]["permissionDecision"], "deny", "{heard}");
    let state = desk.does("sessions show s1/explorer").await;
    assert!(state.contains(MAIL), "{state}");

    // Identical runs of the tests with nothing between are a loop: slowed, and then refused. An edit clears it.
    let tests = json!({"command": "cargo test", "description": "Run the tests"});
    let mut refused = None;
    for n in 0..25 {
        let id = format!("c{n}");
        refused = agent.asks(&id, "Bash", tests.clone()).await;
        if refused.is_some() {
            break;
        }
        agent.gave(&id, "Bash", tests.clone(), "test result: ok. 12 passed; finished in 0.31s").await;
    }
    let why = refused.expect("the loop is broken");
    assert!(why.contains("Bash"), "{why}");
    agent.gave("e", "Edit", json!({"file_path": "/w/a", "old_string": "a", "new_string": "b"}), "edited").await;
    assert_eq!(agent.asks("c9", "Bash", tests).await, None, "after an edit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_gives_the_model_its_summary() {
    let desk = Desk::open().await;
    for (host, session) in [("claude-code", "s1"), ("codex", "s2"), ("gemini", "s3")] {
        let agent = desk.agent(host, session);
        assert_eq!(agent.asks("t1", MAIL, mail("a@b.c")).await, None);
        agent.gave("t1", MAIL, mail("a@b.c"), "sent as message 7").await;
        let heard = if host == "gemini" {
            assert_eq!(agent.tells("PreCompress", json!({"trigger": "manual"})).await, Value::Null);
            agent.tells("BeforeAgent", json!({"prompt": "go on"})).await
        } else {
            assert_eq!(agent.tells("PreCompact", json!({"trigger": "manual"})).await, Value::Null);
            agent.tells("SessionStart", json!({"source": "compact"})).await
        };
        let context = heard["hookSpecificOutput"]["additionalContext"].as_str().expect("a summary");
        assert!(context.contains(MAIL) && context.contains("message 7"), "{context}");
        if host == "gemini" {
            assert_eq!(agent.tells("BeforeAgent", json!({"prompt": "go on"})).await, Value::Null, "it was told once");
        }
    }
    assert_eq!(desk.agent("claude-code", "new").tells("SessionStart", json!({"source": "compact"})).await, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warning_is_told_where_a_host_hears_it() {
    let desk = Desk::open().await;
    for (host, before, after, hears_before) in [
        ("claude-code", "PreToolUse", "PostToolUse", true),
        ("codex", "PreToolUse", "PostToolUse", true),
        ("gemini", "BeforeTool", "AfterTool", false),
        ("cursor", "preToolUse", "postToolUse", false),
    ] {
        let agent = desk.agent(host, host);
        let mut heard = [String::new(), String::new()];
        for n in 1..=4 {
            let made = format!(r#"{{"document_id": "doc_{n}"}}"#);
            let mut call = json!({"tool_name": "mcp__docs__make", "tool_input": {"title": "Q3 report"},
                                  "tool_use_id": n.to_string(), "tool_output": made, "tool_response": made});
            if host == "gemini" {
                call["tool_response"] = json!({"llmContent": made});
            }
            for (event, heard) in [before, after].into_iter().zip(&mut heard) {
                heard.push_str(&agent.tells(event, call.clone()).await.to_string());
            }
        }
        let are_warned = heard.each_ref().map(|text| text.contains("doc_1"));
        assert_eq!(are_warned, [hears_before, !hears_before], "{host}: {heard:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_calls_are_cancelled_at_the_end_of_a_turn() {
    let desk = Desk::open().await;
    let agent = desk.agent("claude-code", "s1");
    let state = async || desk.does("sessions show s1").await;
    // The host shows that it never ran: it may be asked for again.
    assert_eq!(agent.asks("t1", MAIL, mail("a")).await, None);
    let refused = json!({"tool_name": MAIL, "tool_input": mail("a"), "tool_use_id": "t1", "reason": "auto mode"});
    agent.tells("PermissionDenied", refused).await;
    assert_eq!(agent.asks("t2", MAIL, mail("a")).await, None, "{}", state().await);
    // The turn ends, and the execution is unknown.
    agent.tells("Stop", json!({"stop_hook_active": false})).await;
    let why = agent.asks("t3", MAIL, mail("a")).await.expect("refused");
    assert!(why.contains("may have"), "{why}");
    // A read is harmless.
    assert_eq!(agent.asks("r1", "Read", json!({"file_path": "/w/a"})).await, None);
    agent.tells("UserPromptSubmit", json!({"prompt": "go on"})).await;
    assert_eq!(agent.asks("r2", "Read", json!({"file_path": "/w/a"})).await, None);
    // A failure that was an interrupt is no error.
    let call = json!({"tool_name": "Read", "tool_input": {"file_path": "/w/a"}, "tool_use_id": "r2",
                      "error": "interrupted", "is_interrupt": true});
    agent.tells("PostToolUseFailure", call).await;
    assert_eq!(agent.asks("r3", "Read", json!({"file_path": "/w/a"})).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_somebody_changed_may_be_read_again() {
    let desk = Desk::open().await;
    let agent = desk.agent("claude-code", "s1");
    let file = desk.home.file("notes.txt", "one");
    let read = json!({"file_path": path(&file)});
    // A file that has just changed may change again without a sign of it.
    for id in ["t1", "t2"] {
        assert_eq!(agent.asks(id, "Read", read.clone()).await, None);
        agent.gave(id, "Read", read.clone(), "one").await;
    }
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    assert_eq!(agent.asks("t3", "Read", read.clone()).await, None);
    agent.gave("t3", "Read", read.clone(), "one").await;
    let why = agent.asks("t4", "Read", read.clone()).await.expect("nothing has changed");
    assert!(why.contains("previous_result:\none") && why.contains("has not changed since"), "{why}");
    desk.home.file("notes.txt", "two");
    assert_eq!(agent.asks("t5", "Read", read).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_nothing_runs_unless_its_owner_wants_that() {
    let mut desk = Desk::open().await;
    assert_eq!(desk.agent("claude-code", "s1").asks("t1", MAIL, mail("a")).await, None);
    desk.kill().await;
    let with = |args: &[&'static str]| Agent { args: args.to_vec(), ..desk.agent("claude-code", "s1") };
    let mail = json!({"tool_name": MAIL, "tool_input": mail("b"), "tool_use_id": "t2"});
    let read = json!({"tool_name": "Read", "tool_input": {"file_path": "/w/a"}, "tool_use_id": "t3"});
    let look = json!({"tool_name": "Bash", "tool_input": {"command": "git status"}, "tool_use_id": "t4"});
    for (args, call, runs) in [
        (&[][..], &mail, false),
        (&[], &read, false),
        (&["--fail-open", "reads"], &mail, false),
        (&["--fail-open", "reads"], &read, true),
        (&["--fail-open", "reads"], &look, false),
        (&["--fail-open"], &mail, true),
        (&["--fail-open", "all"], &mail, true),
    ] {
        let (code, out, error) = with(args).runs("PreToolUse", call.clone()).await;
        assert_eq!((code, out.as_str()), (if runs { 0 } else { 2 }, ""), "{args:?} {call}: {error}");
        assert!(error.contains(if runs { "runs without a decision (--fail-open)" } else { "was refused" }), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for (host, event) in [("codex", "PreToolUse"), ("gemini", "BeforeTool"), ("cursor", "preToolUse")] {
        assert_eq!(desk.agent(host, "s1").runs(event, mail.clone()).await.0, 2, "{host}");
    }
    // A finished call is not delayed.
    assert_eq!(with(&[]).runs("Stop", json!({})).await.0, 1);
    assert_eq!(with(&["--fail-open"]).runs("Stop", json!({})).await.0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_event_is_blocked_before_a_tool_alone() {
    let home = Home::empty();
    let desk = Desk { url: "http://127.0.0.1:9".to_owned(), server: None, home };
    for (host, text, code) in [
        ("claude-code", "", 2),
        ("claude-code", "no JSON", 2),
        ("claude-code", r#"{"hook_event_name":"PreToolUse","session_id":"s"}"#, 2),
        ("gemini", r#"{"hook_event_name":"BeforeTool","#, 2),
        ("claude-code", r#"{"hook_event_name":"Stop","#, 0),
        ("claude-code", r#"{"hook_event_name":"TeammateIdle","session_id":"s"}"#, 0),
        ("cursor", r#"{"hook_event_name":"afterAgentThought"}"#, 0),
    ] {
        let (is, out, error) = desk.hook(&[host], text).await;
        assert_eq!((is, out.as_str()), (code, ""), "{host} {text}: {error}");
        assert!(error.lines().count() <= 1, "{error}");
        assert!(code == 0 || error.contains("the hook's input from "), "{error}");
    }
    let token = desk.home.file("token", "a\nsecret");
    let call = r#"{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"Bash","tool_use_id":"t"}"#;
    let args = ["claude-code", "--fail-open", "--token-file", path(&token)];
    let (code, _, error) = desk.hook(&args, call).await;
    assert_eq!(code, 2, "a credential that cannot be shown is no server out of reach: {error}");
    assert!(!error.contains("secret"), "{error}");
}
