//! Script commands: calls are judged and reported from a shell, with stable names in JSON output.

use serde_json::Value;

use crate::server::{Home, Server, path, ran};

const POLICY: &str = "policy_engine:
  authorization:
    tiers:
      - {name: drops, pattern: 'delete_*', action: hitl}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas:
    get_order: {effect: read}
    pay: {effect: write, once: true}
    wire: {effect: write, key_honored: true}
    delete_order: {effect: write, second_change: allow}
    shell.exec: {effect: write, second_change: allow}
";

/// A server, and a shell.
pub(crate) struct Desk {
    url: String,
    // Before the home, which waits for the end of its database.
    _server: Server,
    pub(crate) home: Home,
}

impl Desk {
    pub(crate) async fn open() -> Self {
        let home = Home::with_cluster().await;
        let policy = home.file("policy.yaml", POLICY);
        let server = Server::start(&home, &["--policy", path(&policy)]);
        Self { url: format!("http://{}", server.address), _server: server, home }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn types(&self, line: &str) -> (Option<i32>, String, String) {
        let words: Vec<&str> = line.split(' ').chain(["--server", &self.url]).collect();
        ran(&words).await
    }

    /// The lines of JSON that a command prints, and its exit code.
    pub(crate) async fn json(&self, line: &str) -> (Option<i32>, Vec<Value>) {
        let (code, said, error) = self.types(&format!("{line} --json")).await;
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}: {error}"));
        (code, said.lines().map(read).collect())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_branches_on_what_is_decided_of_its_call() {
    let desk = Desk::open().await;
    let arguments = desk.home.file("pay.json", "{\"amount\": 7}");
    let pay = format!("evaluate --session s1 --tool pay --arguments @{}", path(&arguments));
    let (code, said) = desk.json(&pay).await;
    assert_eq!(code, Some(0));
    let verdict = &said[0]["verdict"];
    assert_eq!(verdict["decision"], "DECISION_ALLOW");
    let call = verdict["callId"].as_str().expect("an id that was made").to_owned();

    let recorded = desk.types(&format!("record {call} success --session s1 --result paid")).await;
    assert_eq!(recorded.0, Some(0), "{}", recorded.2);
    assert!(recorded.1.starts_with("recorded   success\n"), "{}", recorded.1);
    let (code, said, _) = desk.types(&pay).await;
    assert_eq!(code, Some(12), "what was done once is told, not done: {said}");
    assert!(said.starts_with("REUSE ") && said.contains("paid"), "{said}");

    let (code, said, error) = desk.types("evaluate --session s2 --tool delete_order --call-id d1 --wait 1").await;
    assert_eq!(code, Some(10), "{said}{error}");
    assert!(said.starts_with("ASK ") && error.contains("waiting for approval: callgate approvals approve "), "{error}");
    let (_, open) = desk.json("approvals list").await;
    let id = open[0]["approvalId"].as_str().expect("an id").to_owned();
    let waiting = desk.types("evaluate --session s2 --tool delete_order --call-id d1 --wait 60");
    let answer = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        desk.types(&format!("approvals approve {id}")).await
    };
    let ((code, said, error), _) = tokio::join!(waiting, answer);
    assert_eq!(code, Some(0), "a person said yes meanwhile: {said}{error}");

    let failed = "record d1 error --session s2 --error slow --http-status 429 --retry-after 2";
    let (code, said) = desk.json(failed).await;
    assert_eq!((code, &said[0]["failure"]), (Some(0), &Value::from("FAILURE_KIND_RATE_LIMITED")));
    assert_eq!(desk.types("sessions halt session s3 --reason enough").await.0, Some(0));
    assert_eq!(desk.types("evaluate --session s3 --tool get_order").await.0, Some(14), "it is stopped");
    let (code, _, error) = desk.types("record nothing success --session s1").await;
    assert!(code == Some(1) && error.contains("[CALL_UNKNOWN]"), "{error}");
    let (code, _, error) = ran(&["evaluate", "--session", "s", "--tool", "t", "--server", "http://127.0.0.1:9"]).await;
    assert_eq!(code, Some(75), "nobody was asked: {error}");
    let (code, _, error) = desk.types("evaluate --session s1 --tool get_order --call-id c/%00\u{1}").await;
    assert_eq!(code, Some(1), "the caller's own mistake: {error}");
    let (code, _, error) = desk.types("evaluate --session s1 --tool get_order --arguments {").await;
    assert_eq!(code, Some(13), "what a model wrote wrong is refused to it: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_says_whether_its_command_received_the_key() {
    let desk = Desk::open().await;
    for (call, flag, repeat) in [("kept", "", "REPEAT_BY_PERSON"), ("sent", " --key-sent", "REPEAT_BY_CLIENT")] {
        let ask = format!("evaluate --session s1 --tool wire --call-id {call} --arguments {{\"to\":\"{call}\"}}");
        assert_eq!(desk.types(&ask).await.0, Some(0));
        let failed = format!("record {call} error --session s1 --error slow --http-status 504{flag}");
        let (_, said) = desk.json(&failed).await;
        assert_eq!(said[0]["advice"]["repeat"], repeat, "{}", said[0]);
    }
}

#[tokio::test]
async fn shells_and_man_have_their_files() {
    let folder = tempfile::tempdir().expect("a folder");
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = ran(&["completions", shell]).await;
        assert!(code == Some(0) && script.contains("evaluate") && script.contains("context"), "{shell}");
    }
    assert_eq!(ran(&["man", path(folder.path())]).await.0, Some(0));
    let page = std::fs::read_to_string(folder.path().join("callgate-evaluate.1")).expect("a page");
    assert!(page.contains("get_order"), "with its examples:\n{page}");
}
