//! `callgate … | head`: a closed pipe is no error.

use std::process::Stdio;

use callgate_proto::v1::{HaltRequest, HaltScope, session_service_client::SessionServiceClient};

use crate::{
    common::{
        until,
        wire::{call, evaluate, from, question},
    },
    server::{Home, Server, path, ran, unread},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_that_prints_ends_quietly_when_its_reader_leaves() {
    let home = Home::with_cluster().await;
    let policy = home.file("policy.yaml", "policy_engine: {tool_schemas: {get_order: {effect: read}}}\n");
    let server = Server::start(&home, &["--policy", path(&policy)]);
    let mut client = server.client().await;
    evaluate(&mut client, question("s1", call("c1", "get_order", "{}"))).await;
    let channel = crate::common::wire::channel(server.address).await;
    let halt = HaltRequest { scope: HaltScope::Tool.into(), name: "drop_table".into(), ..HaltRequest::default() };
    SessionServiceClient::new(channel).halt(from("eve", halt)).await.expect("halted");

    let url = format!("http://{}", server.address);
    let file = path(&policy);
    let other = home.file("other.yaml", "policy_engine: {tool_schemas: {get_order: {effect: write}}}\n");
    let mut commands = vec![
        (vec!["policy", "schema"], 0),
        (vec!["policy", "check", file], 0),
        (vec!["policy", "diff", file, path(&other)], 1),
        (vec!["tools", "lint", "--list"], 0),
        (vec!["--help"], 0),
    ];
    for words in [
        &["report", "--json"][..],
        &["report"],
        &["profiles"],
        &["profiles", "--json"],
        &["sessions", "list"],
        &["sessions", "show", "s1"],
        &["sessions", "resume", "tool", "nothing"],
        &["approvals", "list"],
        &["grants", "list", "s1"],
        &["policy", "list"],
        &["policy", "show"],
        &["explain", "c1"],
    ] {
        commands.push(([words, &["--server", &url]].concat(), 0));
    }
    // Afterwards the server has counted, and has nothing to say about it.
    let report = ["report", "--server", &url];
    until("the report to be counted", async || !ran(&report).await.2.contains("is counting")).await;
    for (words, code) in commands {
        assert_eq!(unread(&words).await, (Some(code), String::new()), "{words:?}");
        assert_eq!(ran(&words).await.0, Some(code), "and the same with a reader: {words:?}");
    }
}

#[test]
fn other_write_error_is_reported() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let mut schema = std::process::Command::new(env!("CARGO_BIN_EXE_callgate"));
    let output = schema.args(["policy", "schema"]).stdout(full).stderr(Stdio::piped()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("callgate: cannot write the output: No space left on device"), "{said}");
}
