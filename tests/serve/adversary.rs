//! Adversarial agent with a shell, as a user of its own beside the server's: attempts to run its call and to disable
//! its judge (docs/security.md#an-agent-of-the-same-user). Needs root, to run as another user.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

use callgate_proto::v1::{self, Decision};

use crate::{
    common::{
        process::is_alive,
        wire::{call, question},
    },
    server::{Home, Server, path, program, ran, run_to_end},
};

/// The user `nobody`, in Debian.
const NOBODY: &str = "65534";
const POLICY: &str = "policy_engine:
  authorization: {tiers: [{name: pays, pattern: pay, action: hitl}]}
  tool_schemas: {pay: {effect: write, once: true}}
";

/// Knowledge of the agent: the address, its own token, and all paths.
struct Shell {
    variables: Vec<(&'static str, String)>,
}

impl Shell {
    /// Runs a line as the agent's user; returns success and output.
    async fn runs(&self, line: &str) -> (bool, String) {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "bash", "-c", line]).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").envs(self.variables.iter().cloned()).current_dir("/");
        let (code, out, error) = run_to_end(command).await;
        (code == Some(0), out + &error)
    }
}

#[expect(clippy::print_stderr, reason = "a test says that it is skipped")]
fn can_be_another() -> bool {
    let status = Command::new("setpriv").args(["--reuid", NOBODY, "true"]).stderr(Stdio::null()).status();
    let can = status.is_ok_and(|status| status.success());
    if !can {
        eprintln!("skipped: only root runs things as another user");
    }
    can
}

async fn token(home: &Home, role: &str) -> String {
    let dir = home.data_dir();
    let (code, token, error) = ran(&["tokens", "create", role, "--role", role, "--data-dir", path(&dir)]).await;
    assert_eq!(code, Some(0), "{error}");
    token.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_another_user_cannot_answer_its_own_question() {
    if !can_be_another() {
        return;
    }
    let home = Home::with_cluster().await;
    let (dir, policy) = (home.data_dir(), home.file("policy.yaml", POLICY));
    let server = Server::start(&home, &["--policy", path(&policy)]);
    let (admin, agent) = (token(&home, "admin").await, token(&home, "agent").await);
    let person = home.file("person", &admin);
    let settings = home.file("managed-settings.json", "{}");
    for (file, mode) in [(&person, 0o600), (&settings, 0o644)] {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("ours");
    }
    // Others can reach the files themselves.
    fs::set_permissions(home.folder(), fs::Permissions::from_mode(0o755)).expect("ours");
    let ask = async || {
        let mut request = tonic::Request::new(question("s", call("c1", "pay", r#"{"to":"me"}"#)));
        request.metadata_mut().insert("authorization", format!("Bearer {agent}").parse().expect("ASCII"));
        let answer = server.client().await.evaluate(request).await.expect("an answer").into_inner();
        answer.verdict.expect("a verdict")
    };
    let asked: v1::Verdict = ask().await;
    assert_eq!(asked.decision(), Decision::Ask);
    let url = format!("http://{}", server.address);
    let callgate = program().get_program().to_str().expect("UTF-8").to_owned();
    let variables = [
        ("CALLGATE", callgate),
        ("URL", url),
        ("AGENT", agent.clone()),
        ("ID", asked.approval_id.clone()),
        ("DIR", path(&dir).to_owned()),
        ("PERSON", path(&person).to_owned()),
        ("SETTINGS", path(&settings).to_owned()),
        ("POLICY", path(&policy).to_owned()),
        ("PID", server.pid().to_string()),
    ];
    let shell = Shell { variables: variables.to_vec() };
    for attempt in [
        "$CALLGATE approvals approve $ID --server $URL",
        "CALLGATE_TOKEN=$AGENT $CALLGATE approvals approve $ID --server $URL --by eve",
        "$CALLGATE tokens create me --role admin --data-dir $DIR",
        "printf '{\"approvalId\":\"%s\",\"approve\":true}' $ID | \
         curl -fsS $URL/callgate.v1.ApprovalService/ResolveApproval -H 'content-type: application/json' \
         -H \"authorization: Bearer $AGENT\" -H 'callgate-by: eve' -d @-",
        "CALLGATE_TOKEN=$AGENT $CALLGATE tokens create me --role admin --server $URL",
        "cat $PERSON",
        "cat /proc/$PID/environ",
        "ls $DIR/run && cat $DIR/password",
        "kill -9 $PID",
        "CALLGATE_TOKEN=$AGENT $CALLGATE policy activate $POLICY --server $URL",
        "echo '{}' > $SETTINGS",
        "rm -f $SETTINGS $POLICY",
    ] {
        let (succeeded, said) = shell.runs(attempt).await;
        assert!(!succeeded && !said.contains(&admin), "{attempt}: {said}");
        assert!(
            !said.contains("unrecognized subcommand") && !said.contains("unexpected argument"),
            "{attempt}: {said}"
        );
    }
    assert!(is_alive(server.pid()));
    assert_eq!(ask().await.decision(), Decision::Ask, "nobody has answered");
    // The same by who may: the attempts failed for who made them.
    let mut command = program();
    let url = format!("http://{}", server.address);
    command.args(["approvals", "approve", &asked.approval_id, "--server", &url]).env("CALLGATE_TOKEN_FILE", &person);
    let (code, _, error) = run_to_end(command).await;
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(ask().await.decision(), Decision::Allow);
}
