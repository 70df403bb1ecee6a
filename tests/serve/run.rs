//! `callgate run`: a command as a call, with a server.

use std::{io::Read as _, process::Stdio, time::Duration};

use crate::{
    common::{process::signal, until},
    scripts::Desk,
    server::{path, program, ran},
};

impl Desk {
    async fn runs(&self, args: &str, script: &str) -> (Option<i32>, String, String) {
        let words: Vec<&str> = args.split(' ').chain(["--server", self.url(), "--", "sh", "-c", script]).collect();
        ran(&[&["run"], words.as_slice()].concat()).await
    }

    /// The session's last stored call.
    async fn last(&self, session: &str) -> serde_json::Value {
        let (_, said) = self.json(&format!("sessions show {session}")).await;
        said[0]["state"]["calls"].as_array().expect("calls").last().expect("one").clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_runs_as_a_call_and_its_end_is_recorded() {
    let desk = Desk::open().await;
    let (code, said, error) = desk.runs("--session r1", "echo $CALLGATE_IDEMPOTENCY_KEY; echo no >&2").await;
    assert_eq!((code, said.trim().len(), error.as_str()), (Some(0), 32, "no\n"));
    let last = desk.last("r1").await;
    assert_eq!((&last["tool"], &last["state"]), (&"shell.exec".into(), &"CALL_STATE_SUCCEEDED".into()), "{last}");
    let (code, _, _) = desk.runs("--session r2 --tool get_order", "exit 7").await;
    assert_eq!(code, Some(7));
    let last = desk.last("r2").await;
    assert_eq!(last["state"], "CALL_STATE_FAILED", "{last}");
    assert!(last["errorMessage"].as_str().is_some_and(|text| text.contains("exit code 7")), "{last}");
    let words = ["run", "--session", "r3", "--server", desk.url(), "--", "/nowhere/program"];
    let (code, _, error) = ran(&words).await;
    assert!(code == Some(127) && error.contains("cannot start /nowhere/program"), "{error}");

    // Refused: nothing runs, and the caller's text is printed.
    let ran_file = desk.home.folder().join("ran");
    let touch = format!("touch {}", path(&ran_file));
    assert_eq!(desk.types("sessions halt session r4 --reason enough").await.0, Some(0));
    let (code, _, error) = desk.runs("--session r4", &touch).await;
    assert!(code == Some(14) && error.starts_with("callgate: STOP ") && error.contains("enough"), "{error}");
    let (code, _, error) = desk.runs("--session r5 --tool delete_x --max-wait 1", &touch).await;
    assert!(code == Some(10) && error.contains("callgate: ASK ") && error.contains("approvals show"), "{error}");
    let away = ["run", "--session", "r6", "--server", "http://127.0.0.1:9", "--", "touch", path(&ran_file)];
    let (code, _, error) = ran(&away).await;
    assert!(code == Some(75) && !ran_file.exists(), "{error}");

    // An approval during the wait.
    let waiting = desk.runs("--session r7 --tool delete_y --max-wait 60", &touch);
    let answer = async {
        let mut id = String::new();
        until("a question", async || {
            let (_, open) = desk.json("approvals list").await;
            let asked = open.iter().find(|one| one["sessionId"] == "r7");
            id = asked.and_then(|one| one["approvalId"].as_str()).unwrap_or_default().to_owned();
            !id.is_empty()
        })
        .await;
        desk.types(&format!("approvals approve {id}")).await
    };
    let ((code, _, error), _) = tokio::join!(waiting, answer);
    assert!(code == Some(0) && ran_file.exists(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_are_the_commands_and_a_killed_callgate_leaves_the_permit_to_its_lease() {
    let desk = Desk::open().await;
    let started = |session: &str, script: &str| {
        let mut command = program();
        command.args(["run", "--session", session, "--server", desk.url(), "--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut first = [0; 6];
        child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("it says that it has begun");
        child
    };
    let script = "trap 'exit 9' TERM; echo begun; while :; do sleep 0.05; done";
    let mut child = started("k1", script);
    assert!(signal(child.id(), "TERM"));
    assert_eq!(child.wait().expect("an end").code(), Some(9), "the command's own answer to it");
    assert_eq!(desk.last("k1").await["state"], "CALL_STATE_FAILED");

    let mut child = started("k2", "echo begun; exec sleep 1");
    child.kill().expect("it runs");
    child.wait().expect("an end");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(desk.last("k2").await["state"], "CALL_STATE_IN_FLIGHT", "nobody has said what came of it");
}
