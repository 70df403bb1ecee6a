//! Server and simulated agents that call its hook as Claude Code does.

use std::{
    collections::BTreeMap,
    fs,
    process::{Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use sqlx::Row as _;
use tokio::io::AsyncWriteExt as _;

use crate::{
    common::in_time,
    script::{Action, Scenario, Step},
    server::{Home, Server, path, program},
    stage::{ActionResult, Stage},
};

/// Result class of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Ran,
    Refused,
    /// Answered from memory; the answer is another now.
    Stale,
    /// Answered with a previous, still valid result.
    Answered,
    Delayed,
}

impl Class {
    /// By the decision, the true answer and the remembered one.
    pub(crate) fn of(decision: &str, truth: &str, remembered: Option<&str>) -> Self {
        match decision {
            "WAIT" => Self::Delayed,
            "REUSE" if remembered == Some(truth) => Self::Answered,
            "REUSE" => Self::Stale,
            _ => Self::Refused,
        }
    }
}

/// Result of an action, and its reason.
#[derive(Debug)]
pub(crate) struct PlayedRun {
    pub(crate) place: String,
    pub(crate) class: Class,
    pub(crate) verdict: String,
}

/// A server with its hooks installed.
#[derive(Clone)]
pub(crate) struct Desk {
    /// The hook's command from the host's settings.
    hook: Vec<String>,
    server: Arc<(Server, Home)>,
    sessions: Arc<AtomicUsize>,
}

impl Desk {
    pub(crate) async fn open(policy: &str) -> Self {
        let home = Home::with_cluster().await;
        let file = home.file("policy.yaml", policy);
        let more: &[&str] = if policy.is_empty() { &[] } else { &["--policy", path(&file)] };
        let server = Server::start(&home, more);
        let url = format!("http://{}", server.address);
        let mut install = program();
        install.args(["agents", "install", "claude-code", "--server", &url]).current_dir(home.folder());
        install.env("HOME", home.folder()).env_remove("CLAUDE_CONFIG_DIR").env_remove("XDG_STATE_HOME");
        let output = install.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let settings = fs::read_to_string(home.folder().join(".claude/settings.json")).expect("settings");
        let settings: Value = serde_json::from_str(&settings).expect("JSON");
        let handler = &settings["hooks"]["PreToolUse"][0]["hooks"][0];
        let words = std::iter::once(&handler["command"]).chain(handler["args"].as_array().into_iter().flatten());
        let hook = words.map(|word| word.as_str().expect("a word").to_owned()).collect();
        Self { hook, server: Arc::new((server, home)), sessions: Arc::default() }
    }

    /// Plays a scenario to its end.
    pub(crate) async fn play(&self, scenario: &Scenario) -> Vec<PlayedRun> {
        let name = format!("live-{}", self.sessions.fetch_add(1, Ordering::Relaxed));
        let stage = tokio::task::spawn_blocking(Stage::open).await.expect("a stage");
        let mut agent = Agent { desk: self, stage, name, turn: 0, calls: 0, remembered: BTreeMap::new() };
        let (mut played, mut is_refused) = (Vec::new(), false);
        agent.turn().await;
        for (place, step) in &scenario.steps {
            match step {
                Step::Setup(line) | Step::Person(line) => agent.stage.run_in("repo", line),
                Step::Colleague(line) => agent.stage.run_in("colleague", line),
                Step::Turn => agent.turn().await,
                Step::No => is_refused = true,
                Step::Compact => agent.compact().await,
                Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
                Step::Action(who, action) => {
                    let sub = who.as_deref();
                    let (class, verdict) = agent.act(sub, action, std::mem::take(&mut is_refused)).await;
                    let verdict = format!("{}: {action:?}: {verdict}", scenario.name);
                    played.push(PlayedRun { place: place.clone(), class, verdict });
                }
            }
        }
        played
    }

    async fn hook(&self, input: &Value) -> Value {
        let mut command = tokio::process::Command::new(&self.hook[0]);
        command.args(&self.hook[1..]).env("HOME", self.server.1.folder());
        command.env("XDG_STATE_HOME", self.server.1.folder().join("state"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it runs");
        let mut stdin = child.stdin.take().expect("piped");
        // It may end before it has read all.
        let _ = stdin.write_all(input.to_string().as_bytes()).await;
        drop(stdin);
        let Output { status, stdout, stderr } = in_time("an end", child.wait_with_output()).await.expect("it runs");
        assert!(status.success(), "{input}: {}", String::from_utf8_lossy(&stderr));
        if stdout.is_empty() { Value::Null } else { serde_json::from_slice(&stdout).expect("JSON") }
    }

    /// The decision on a call, its rule and its text.
    async fn verdict(&self, session: &str, call_id: &str) -> (String, String) {
        let query = "select decision, coalesce(rule, ''), coalesce(message, '') from tool_call
            where session_id = $1 and call_id = $2";
        let mut connection = self.server.1.connect().await;
        let row = sqlx::query(query).bind(session).bind(call_id).fetch_one(&mut connection).await.expect("a call");
        let text = |at: usize| row.get::<String, _>(at);
        (text(0), format!("{} {}: {}", text(0), text(1), text(2)))
    }
}

struct Agent<'a> {
    desk: &'a Desk,
    stage: Stage,
    name: String,
    turn: usize,
    calls: usize,
    /// The last result that was reported of an action.
    remembered: BTreeMap<String, String>,
}

impl Agent<'_> {
    async fn event(&self, name: &str, sub: Option<&str>, more: Value) -> Value {
        let mut input = json!({"hook_event_name": name, "session_id": self.name, "cwd": self.stage.path("repo"),
            "prompt_id": format!("turn-{}", self.turn), "permission_mode": "default"});
        let members = input.as_object_mut().expect("an object");
        members.extend(sub.map(|sub| ("agent_id".to_owned(), sub.into())));
        members.extend(more.as_object().cloned().expect("an object"));
        self.desk.hook(&input).await
    }

    async fn turn(&mut self) {
        if self.turn > 0 {
            self.event("Stop", None, json!({})).await;
        }
        self.turn += 1;
        self.event("UserPromptSubmit", None, json!({"prompt": "go on"})).await;
    }

    async fn compact(&self) {
        self.event("PreCompact", None, json!({"trigger": "auto"})).await;
        self.event("SessionStart", None, json!({"source": "compact"})).await;
    }

    /// Evaluates, executes, reports. A refused action is executed without a report, so that the story continues.
    async fn act(&mut self, sub: Option<&str>, action: &Action, is_refused: bool) -> (Class, String) {
        self.calls += 1;
        let id = format!("toolu_{}", self.calls);
        let (tool, input) = self.stage.call(action);
        let call = json!({"tool_name": tool, "tool_input": input, "tool_use_id": id});
        let heard = self.event("PreToolUse", sub, call.clone()).await;
        let is_denied = heard["hookSpecificOutput"]["permissionDecision"] == "deny";
        if is_refused && !is_denied {
            // Claude Code shows its own prompt, and reports nothing when its user refuses there.
            self.event("PermissionRequest", sub, json!({"tool_name": tool, "tool_input": input})).await;
            return (Class::Ran, String::new());
        }
        let (stage, action_done) = (&self.stage, action.clone());
        let given = tokio::task::block_in_place(|| stage.execute(&action_done));
        let key = format!("{tool} {input}");
        if is_denied {
            let session = sub.map_or_else(|| self.name.clone(), |sub| format!("{}/{sub}", self.name));
            let (decision, verdict) = self.desk.verdict(&session, &id).await;
            let remembered = self.remembered.get(&key).map(String::as_str);
            return (Class::of(&decision, &given.text, remembered), verdict);
        }
        self.report(sub, tool, call, &given).await;
        self.remembered.insert(key, given.text);
        (Class::Ran, String::new())
    }

    async fn report(&self, sub: Option<&str>, tool: &str, mut call: Value, given: &ActionResult) {
        if given.code != 0 {
            let exit = if tool == "Bash" { format!("Exit code {}\n", given.code) } else { String::new() };
            call["error"] = format!("{exit}{}", given.text).into();
            self.event("PostToolUseFailure", sub, call).await;
            return;
        }
        call["tool_response"] = match tool {
            "Bash" => json!({"stdout": given.text, "stderr": "", "interrupted": false, "isImage": false}),
            "Read" => json!({"type": "text", "file": {"content": given.text}}),
            _ => given.text.clone().into(),
        };
        self.event("PostToolUse", sub, call).await;
    }
}
