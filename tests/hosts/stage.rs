//! Test environment: a server, a home folder with hooks, a tool server that records executions, and a model.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    agent::Agent,
    common::{postgres::folder, until, within},
    server::{Home, Server, path, program, ran},
};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hosts");
/// Timeout of a program for one prompt.
const PATIENCE: Duration = Duration::from_secs(180);
const POLICY: &str = "policy_engine:
  presets: [coding_agents]
  unknown_tools: allow
  authorization:
    tiers:
      - {name: money, pattern: 'mcp__desk__pay|mcp_desk_pay', action: hitl}
      - {name: contracts, pattern: 'mcp__desk__sign', action: hitl, approver: host}
      - {name: others, pattern: '*', action: allowlist}
  tool_schemas:
    mcp__desk__send: {effect: write}
    mcp_desk_send: {effect: write}
    mcp__desk__pay: {effect: write}
    mcp_desk_pay: {effect: write}
    mcp__desk__sign: {effect: write}
";

pub(crate) struct Stage {
    pub(crate) agent: Agent,
    url: String,
    server: Option<Server>,
    person: TempDir,
    _home: Home,
}

impl Stage {
    /// None, and a printed line, where the program is not installed.
    #[allow(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
    pub(crate) async fn open(agent: Agent, options: &[&str]) -> Option<Self> {
        if agent.program().is_none() {
            eprintln!("skipped: {} is not installed; `make hosts` installs it where npm is", agent.name());
            return None;
        }
        let home = Home::with_cluster().await;
        let policy = home.file("policy.yaml", POLICY);
        let (data_dir, log) = (home.data_dir(), home.file("log", ""));
        let server = Server::logging(&["--data-dir", path(&data_dir), "--policy", path(&policy)], &log);
        let url = format!("http://{}", server.address);
        let stage = Self { agent, url, server: Some(server), person: folder(), _home: home };
        fs::create_dir(stage.path("work")).expect("a folder");
        let (desk, file) = (format!("{HERE}/desk.mjs"), stage.path("ran"));
        agent.settle(stage.person.path(), &["node", &desk, path(&file)]);
        stage.install(options);
        Some(stage)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.person.path().join(name)
    }

    /// As a person installs the hooks: it ends with a call through the hook that was written.
    fn install(&self, options: &[&str]) {
        let mut command = program();
        command.args(["agents", "install", self.agent.name(), "--server", &self.url]).args(options);
        for name in ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        let output = command.env("HOME", self.person.path()).current_dir(self.path("work")).output().expect("it runs");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains("recorded by the server"), "{said}");
    }

    /// Sends the agent a prompt, and plays the model's turns; returns the model's input before each of its turns.
    pub(crate) async fn tell(&self, prompt: &str, turns: &Value) -> Vec<Value> {
        self.say(prompt, false, turns).await
    }

    /// [`Self::tell`] in the existing conversation.
    pub(crate) async fn go_on(&self, prompt: &str, turns: &Value) -> Vec<Value> {
        self.say(prompt, true, turns).await
    }

    async fn say(&self, prompt: &str, goes_on: bool, turns: &Value) -> Vec<Value> {
        let model = Model::start(self.person.path(), turns);
        let command = self.agent.command(self.person.path(), model.port, prompt, goes_on);
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let output = within(PATIENCE, "the agent's end", command.output()).await.expect("it runs");
        let requests = model.requests();
        let said = [output.stdout, output.stderr].concat();
        assert!(!requests.is_empty(), "the model was asked nothing: {}", String::from_utf8_lossy(&said));
        requests
    }

    /// The calls that tools have run, each as its name and its text.
    pub(crate) fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("ran")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Runs a command; returns its output.
    pub(crate) async fn does(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').chain(["--server", &self.url]).collect();
        let (code, said, error) = ran(&words).await;
        assert_eq!(code, Some(0), "{line}: {error}");
        said
    }

    /// The pending approval request.
    pub(crate) async fn question(&self) -> String {
        let mut listed = String::new();
        until("the question", async || {
            listed = self.does("approvals list").await;
            listed.contains("apr_")
        })
        .await;
        listed.split_whitespace().find(|word| word.starts_with("apr_")).expect("an id").to_owned()
    }

    pub(crate) fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }
}

/// A model for one prompt.
struct Model {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Model {
    fn start(folder: &Path, turns: &Value) -> Self {
        let [script, log] = ["script.json", "log.jsonl"].map(|name| folder.join(name));
        fs::write(&script, turns.to_string()).expect("writable");
        fs::write(&log, "").expect("writable");
        let mut command = Command::new("node");
        command.arg(format!("{HERE}/model.mjs")).args([&script, &log]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("node runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("UTF-8");
        Self { child, port: line.trim().parse().expect("a port"), log }
    }

    /// Requests to the model.
    fn requests(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).expect("readable");
        let requests = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        requests.filter(|request| request["tools"].as_array().is_some_and(|tools| !tools.is_empty())).collect()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
