//! `--log-format json`: every line that a server prints is one of JSON, from its first to its last.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use serde_json::Value;

use crate::{
    common::{PATIENCE, in_time, postgres::Postgres, process::signal},
    server::{Home, path, program},
};

/// A server's exit code and all of its lines, of both outputs; it is told to end after a line with `last`.
fn lines(mut command: Command, last: &str) -> (Option<i32>, Vec<String>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let (to, from) = mpsc::channel();
    let outputs: [Box<dyn std::io::Read + Send>; 2] =
        [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
    for output in outputs {
        let to = to.clone();
        thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
    }
    drop(to);
    let mut all = Vec::new();
    while let Ok(line) = from.recv_timeout(PATIENCE) {
        if line.contains(last) {
            signal(child.id(), "TERM");
        }
        all.push(line);
    }
    (child.wait().expect("it ends").code(), all)
}

fn assert_json(lines: &[String]) -> Vec<Value> {
    let read = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} is no JSON: {lines:?}"));
    lines.iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_json_lines_prints_nothing_else() {
    let (postgres, home) = (Postgres::start().await, Home::empty());
    let policy = home.file("policy.yaml", "policy_engine: {}\n");
    let mut serve = program();
    serve.args(["serve", "--log-format", "json", "--listen", "127.0.0.1:0", "--database-url", &postgres.url()]);
    serve.args(["--policy", path(&policy)]);
    let run = tokio::task::spawn_blocking(move || lines(serve, "serves gRPC"));
    let (code, all) = in_time("a run", run).await.expect("it ran");
    let said = assert_json(&all);
    assert_eq!(code, Some(0), "{all:?}");
    assert!(
        said.iter().any(|line| line["message"].as_str().is_some_and(|text| text.contains("serves gRPC on http://")))
    );
}

#[test]
fn a_failed_start_with_json_lines_is_a_line_of_json() {
    let home = Home::empty();
    let policy = home.file("policy.yaml", "policy_engine: {budgest: {}}\n");
    for (args, told) in [
        (vec!["--policy", path(&policy)], "budgest"),
        (vec!["--log", "callgate=loud"], "the log filter"),
        (vec!["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "/nowhere"),
    ] {
        let mut serve = program();
        serve.args(["serve", "--log-format", "json", "--listen", "127.0.0.1:0", "--data-dir", path(&home.data_dir())]);
        serve.args(args);
        let (code, all) = lines(serve, "serves gRPC");
        let said = assert_json(&all);
        let is_told =
            |line: &Value| line["level"] == "ERROR" && line["message"].as_str().is_some_and(|m| m.contains(told));
        assert!(code == Some(1) && said.iter().any(is_told), "{told}: {code:?} {all:?}");
    }
}
