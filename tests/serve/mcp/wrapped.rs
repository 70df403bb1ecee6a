//! `callgate mcp wrap` as a process: checks its options, writes callgate's address, tests it.

use std::{fs, process::Stdio};

use callgate_proto::v1::CallState;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
};

use super::Scene;
use crate::{
    common::in_time,
    server::{path, program},
};

const CONFIG: &str = r#"{"mcpServers": {
  "t": {"command": "python3", "args": ["SCRIPT", "KEPT", "look"], "env": {"A": "1"}}
}}
"#;

impl Scene {
    /// Output of the command with callgate's address in the environment, and success.
    pub(super) async fn wraps(&self, server: &str, line: &[&str]) -> (bool, String) {
        let mut command = Command::from(program());
        command
            .args(["mcp", "wrap"])
            .args(line)
            .env("CALLGATE_SERVER", server)
            .env("HOME", self.home.file("none", "").with_file_name("person"));
        let output = in_time("an end", command.output()).await.expect("it runs");
        let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        (output.status.success(), said)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_is_written_and_tested_and_the_way_back_is_exact() {
    let scene = Scene::open().await;
    let kept = scene.home.file("kept", "");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/mcp/server.py");
    let original = CONFIG.replace("SCRIPT", script).replace("KEPT", path(&kept));
    let config = scene.home.file("mcp.json", &original);
    let address = scene.url.trim_start_matches("http://");
    let (is_done, said) = scene.wraps(address, &[path(&config)]).await;
    assert!(is_done && said.contains(&format!("test: callgate answers at {}", scene.url)), "{said}");
    let written: Value = serde_json::from_str(&fs::read_to_string(&config).expect("a file")).expect("JSON");
    let words: Vec<&str> =
        written["mcpServers"]["t"]["args"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
    assert_eq!(words[..6], ["mcp-proxy", "--server-name", "t", "--server", &scene.url, "--"], "{words:?}");
    let (is_done, said) = scene.wraps(address, &[path(&config)]).await;
    assert!(is_done && said.contains("is unchanged") && said.contains("test: "), "{said}");

    // As a host starts it: nothing of its environment but what the settings name.
    let command = written["mcpServers"]["t"]["command"].as_str().expect("a command");
    let mut host = Command::new(command);
    host.args(&words).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    host.env("HOME", kept.with_file_name("person")).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut host = host.spawn().expect("it runs");
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "forbidden"}});
    host.stdin.as_mut().expect("piped").write_all(format!("{line}\n").as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    let mut output = BufReader::new(host.stdout.take().expect("piped"));
    in_time("an answer", output.read_line(&mut answer)).await.expect("a line");
    assert!(answer.contains("tool_denied"), "{answer}");

    let (is_done, said) = scene.wraps(address, &[path(&config), "--undo"]).await;
    assert!(is_done, "{said}");
    assert_eq!(fs::read_to_string(&config).expect("a file"), original);
    assert_eq!(scene.calls().await, Vec::<(String, CallState)>::new(), "the test left a trace");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_options_are_named_before_anything_is_written() {
    let scene = Scene::open().await;
    let config = scene.home.file("mcp.json", CONFIG);
    let name = path(&config);
    for (line, problem) in [
        (&[name, "--", "--frobnicate"][..], "unexpected argument '--frobnicate'"),
        (&[name, "--", "--max-wait-s", "soon"], "invalid value 'soon' for '--max-wait-s <SECONDS>'"),
        (&[name, "--", "--server-name", "x"], "'--server-name <NAME>' cannot be used multiple times"),
        (&[name, "--", "--url", "https://a.example"], "cannot be used with"),
        (&[name, "--", "--fail-open", "reads"], "--fail-open reads needs --trust-annotations"),
        (&[name, "--", "--server", "https://a.example"], "put the server and its credential before --"),
        (&[name, "--server", "http://plane:x"], "is not http://HOST:PORT"),
        (&[name, "--server", "ftp://plane"], "is not http://HOST:PORT"),
        (&[name, "--token-file", "/nowhere/token"], "cannot read /nowhere/token"),
        (&[name, "--server", "https://plane", "--ca", "/nowhere/ca.pem"], "cannot read /nowhere/ca.pem"),
        (&[name, "--context", "nowhere"], "--context nowhere"),
    ] {
        let (is_done, said) = scene.wraps(&scene.url, line).await;
        assert!(!is_done && said.contains(problem), "{line:?}: {said}");
        assert_eq!(fs::read_to_string(&config).expect("a file"), CONFIG, "{line:?}");
    }
    // As for hooks: a server that does not answer yet is written, and the exit code says so.
    let (is_done, said) = scene.wraps("127.0.0.1:1", &[name]).await;
    assert!(!is_done && said.contains("no server answers at http://127.0.0.1:1"), "{said}");
    let text = fs::read_to_string(&config).expect("a file");
    assert!(text.contains(r#""--server", "http://127.0.0.1:1""#), "{text}");
    let (is_done, said) = scene.wraps(&scene.url, &[name, "--no-test"]).await;
    assert!(is_done && !said.contains("test: "), "{said}");
    assert!(fs::read_to_string(&config).expect("a file").contains(&scene.url), "another address replaces the first");
}
