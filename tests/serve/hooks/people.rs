//! Approval requests, of callgate and of the host's own prompt.

use serde_json::{Value, json};

use super::{Agent, Desk};
use crate::{common::until, server::path};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_releases_a_call_that_waits_and_a_denial_is_told() {
    let desk = Desk::open().await;
    for (host, answer) in [("claude-code", "approve"), ("codex", "deny")] {
        let agent = desk.agent(host, if answer == "approve" { "s1" } else { "s2" });
        let asks = agent.asks("t1", "mcp__bank__pay", json!({"amount": 7, "for": host}));
        let answers = async {
            let mut listed = String::new();
            until("the question", async || {
                listed = desk.does("approvals list").await;
                listed.contains("apr_")
            })
            .await;
            let id = listed.split_whitespace().find(|word| word.starts_with("apr_")).expect("an id").to_owned();
            desk.does(&format!("approvals {answer} {id} --by eve --reason checked")).await;
        };
        let (refused, ()) = tokio::join!(asks, answers);
        assert_eq!(refused.is_some(), answer == "deny", "{refused:?}");
        assert!(refused.is_none_or(|why| why.contains("checked")));
    }
    // No answer within the hook's timeout.
    let agent = Agent { args: vec!["--timeout", "8"], ..desk.agent("claude-code", "s3") };
    let why = agent.asks("t1", "mcp__bank__pay", json!({"amount": 8})).await.expect("refused");
    assert!(why.contains("approv"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hosts_own_user_answers_where_the_policy_says_so() {
    const SIGN: &str = "mcp__desk__sign";
    let desk = Desk::open().await;
    let agent = desk.agent("claude-code", "s1");
    let prompted = async |id: &str, tool: &str, input: &Value| {
        let call = json!({"tool_name": tool, "tool_input": input, "tool_use_id": id});
        let heard = &agent.tells("PreToolUse", call).await["hookSpecificOutput"];
        assert_eq!(heard["permissionDecision"], "ask", "{heard}");
        assert!(heard["permissionDecisionReason"].as_str().is_some_and(|why| why.contains(tool)), "{heard}");
    };
    // It ran: the user approved.
    let contract = json!({"text": "contract"});
    prompted("t1", SIGN, &contract).await;
    assert!(desk.does("approvals list").await.contains("apr_"));
    agent.gave("t1", SIGN, contract.clone(), "signed as number 1").await;
    let count = async |state: &str| {
        let listed = desk.does("approvals list --all").await;
        listed.lines().filter(|line| line.split_whitespace().any(|word| word == state)).count()
    };
    assert_eq!(count("approved").await, 1);
    let audited = desk.does("audit list").await;
    assert!(audited.contains("host user"), "{audited}");
    let why = agent.asks("t2", SIGN, contract).await.expect("it is done");
    assert!(why.contains("signed as number 1"), "{why}");
    // The file is another one once it is written.
    let file = desk.home.file("notes.txt", "one");
    let write = json!({"file_path": path(&file), "content": "two and three"});
    prompted("t3", "Write", &write).await;
    desk.home.file("notes.txt", "two and three");
    agent.gave("t3", "Write", write, "written").await;
    assert!(desk.does("sessions show s1").await.contains("notes.txt"));
    assert!(!desk.does("approvals list").await.contains("apr_"), "it was answered");

    // Denied or ignored: the request is withdrawn, and no call runs by it.
    let other = json!({"text": "another contract"});
    prompted("t4", SIGN, &other).await;
    agent.tells("UserPromptSubmit", json!({"prompt": "never mind"})).await;
    assert!(!desk.does("approvals list").await.contains("apr_"));
    assert_eq!(count("withdrawn").await, 1);
    agent.gave("t4", SIGN, other, "signed all the same").await;
    assert!(!desk.does("sessions show s1").await.contains("all the same"));

    // Requests that the host may not answer stay callgate's, and likewise without a prompt.
    for (host, session, tool) in [("claude-code", "s2", "mcp__bank__pay"), ("codex", "s3", SIGN)] {
        let agent = Agent { args: vec!["--timeout", "8"], ..desk.agent(host, session) };
        let why = agent.asks("t1", tool, json!({"text": host})).await.expect("refused");
        assert!(why.contains("approv"), "{why}");
        agent.gave("t1", tool, json!({"text": host}), "done").await;
    }
    assert_eq!(count("approved").await, 2);
}
