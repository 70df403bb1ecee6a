//! `callgate policy`, on files and against a running server.

use std::fs;

use callgate_core::policy;

use crate::server::{Home, Server, path, ran};

const SMALL: &str = "policy_engine:\n  loops: {repeat: {warning: 5, critical: 10, break: 20}}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_says_everything_that_is_wrong_with_every_file() {
    let home = Home::empty();
    let good = home.file(
        "good.yaml",
        "policy_engine: {tool_schemas: {a: {effect: read}, b: {effect: write, idempotent: true}}}\n",
    );
    let bad = home.file("bad.yaml", "policy_engine:\n  mode: loud\n  loops: {windw: 3}\n");
    let (code, said, _) = ran(&["policy", "check", path(&bad), path(&good)]).await;
    assert_eq!(code, Some(1), "{said}");
    for part in [
        &format!("{}:2: ", path(&bad)),
        &format!("{}:3: ", path(&bad)),
        "policy_engine.loops.windw: ",
        "2 problems",
        "1 read tool",
        "1 write tool",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let (code, said, _) = ran(&["policy", "check", path(&good)]).await;
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
    assert!(said.contains("tools that it does not list are refused (DENY): unknown_tools: deny"), "{said}");
    let tier = "{tiers: [{name: reads, pattern: 'get_*', action: allowlist}]}";
    let tier = home.file("tier.yaml", &format!("policy_engine: {{authorization: {tier}}}\n"));
    let (_, said, _) = ran(&["policy", "check", path(&tier)]).await;
    assert!(said.contains("tools that it does not list wait for a person (ASK): there are tiers"), "{said}");
    let routes = "policy_engine:\n  approvals: {routes: [{tools: 'wire_*', group: finance}]}\n  \
                  tool_schemas: {pay: {effect: write, once: true}}\n";
    let routed = home.file("routed.yaml", routes);
    let (code, said, _) = ran(&["policy", "check", path(&routed)]).await;
    assert_eq!(code, Some(0));
    assert!(said.contains("routes[0].tools: wire_* matches no declared tool, so that nobody is asked"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diff_tells_what_differs_by_its_exit_code_too() {
    let home = Home::empty();
    let before = home.file("before.yaml", SMALL);
    let layout = home.file("layout.yaml", &format!("# why\n{SMALL}"));
    let after = home.file("after.yaml", &SMALL.replace("warning: 5", "warning: 3"));
    let (code, said, _) = ran(&["policy", "diff", path(&before), path(&layout)]).await;
    assert_eq!(code, Some(0), "{said}");
    let (code, said, _) = ran(&["policy", "diff", path(&before), path(&after)]).await;
    assert_eq!((code, said.as_str()), (Some(1), "~ policy_engine.loops.repeat.warning: 5 -> 3\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_writes_a_good_policy_and_never_over_another() {
    let home = Home::empty();
    let file = home.file("mine.yaml", "mine");
    let (code, _, said) = ran(&["policy", "init", path(&file)]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("never overwritten"), "{said}");
    assert_eq!(fs::read_to_string(&file).expect("readable"), "mine");
    fs::remove_file(&file).expect("it was there");
    assert_eq!(ran(&["policy", "init", path(&file)]).await.0, Some(0));
    let (code, said, _) = ran(&["policy", "check", path(&file)]).await;
    assert_eq!(code, Some(0), "{said}");
    let (code, schema, _) = ran(&["policy", "schema"]).await;
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
    assert_eq!((code, schema["properties"]["policy_engine"].is_object()), (Some(0), true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_server_is_told_by_commands() {
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &[]);
    let url = format!("http://{}", server.address);
    let told = async |args: &[&str]| {
        let (code, said, error) = ran(&[&["policy"], args, &["--server", url.as_str()]].concat()).await;
        (code, format!("{said}{error}"))
    };
    let other = SMALL.replace("warning: 5", "warning: 3");
    let (first, second) = (home.file("first.yaml", SMALL), home.file("second.yaml", &other));
    assert_eq!(told(&["show"]).await.0, Some(1), "nothing is stored");
    let (code, said) = told(&["apply", path(&first), "--by", "olga", "--note", "the first"]).await;
    assert!(code == Some(0) && said.starts_with("revision 1 is active: ") && said.contains("by olga"), "{said}");
    let (code, said) = told(&["apply", path(&second), "--expect", "7"]).await;
    assert!(code == Some(1) && said.contains("revision 1 is the active one"), "{said}");
    assert_eq!(told(&["apply", path(&second), "--expect", "1"]).await.0, Some(0));
    assert_eq!(told(&["show"]).await, (Some(0), other.clone()));
    let hash = policy::hash(SMALL);
    assert_eq!(told(&["show", &hash[..8]]).await, (Some(0), SMALL.to_owned()));
    let (code, said) = told(&["diff", &hash[..8], "active"]).await;
    assert_eq!((code, said.as_str()), (Some(1), "~ policy_engine.loops.repeat.warning: 5 -> 3\n"));
    assert_eq!(told(&["activate", &hash[..8]]).await.0, Some(0));
    assert_eq!(told(&["diff", path(&first), "active"]).await.0, Some(0));
    assert_eq!(told(&["rollback"]).await.0, Some(0));
    assert_eq!(told(&["show"]).await, (Some(0), other));
    let (code, said) = told(&["list"]).await;
    assert_eq!((code, said.lines().count()), (Some(0), 4), "{said}");
    assert!(said.lines().next().is_some_and(|line| line.contains("  active")), "{said}");

    let bad = home.file("bad.yaml", "policy_engine:\n  mode: loud\n  loops: {windw: 3}\n");
    let (code, said) = told(&["apply", path(&bad)]).await;
    assert_eq!(code, Some(1), "{said}");
    for part in [path(&bad), "line 2: policy_engine.mode: ", "line 3: policy_engine.loops.windw: ", "2 problem(s)"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
}
