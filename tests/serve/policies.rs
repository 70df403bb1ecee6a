//! Policies on servers: a watched file, replicas, restarts, and invalid replacements.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use callgate_core::policy;
use callgate_proto::v1::{ApplyPolicyRequest, policy_service_client::PolicyServiceClient};

use crate::{
    common::{
        in_time,
        postgres::Postgres,
        process::signal,
        until,
        wire::{self, Client, call, evaluate, question},
        within,
    },
    server::{Home, Server, fail_to_start, path, ran},
};

/// Guaranteed propagation time between replicas.
const REPLICAS: Duration = Duration::from_secs(2);

fn text(n: usize) -> String {
    format!("# {n}\npolicy_engine: {{tool_schemas: {{look: {{effect: read}}}}}}\n")
}

fn version(text: &str) -> String {
    policy::hash(text)[..16].to_owned()
}

/// A database of the test's own, which outlives its servers.
struct Stage {
    home: Home,
    postgres: Postgres,
    url: String,
}

impl Stage {
    async fn set() -> Self {
        let (home, postgres) = (Home::empty(), Postgres::start().await);
        let url = postgres.url();
        Self { home, postgres, url }
    }

    /// A server, and the file that its log goes to.
    fn server(&self, log: &str, more: &[&str]) -> (Server, PathBuf) {
        let log = self.home.file(log, "");
        (Server::logging(&[&["--database-url", self.url.as_str()], more].concat(), &log), log)
    }

    /// The revisions' policies, oldest first.
    async fn history(&self) -> Vec<String> {
        let rows = self.postgres.rows("select left(hash, 16) from policy_activation order by revision").await;
        rows.iter().map(|row| row.trim_matches(['(', ')']).to_owned()).collect()
    }
}

/// The judging policy, by a new call.
async fn judges(client: &mut Client, n: &mut usize) -> String {
    *n += 1;
    evaluate(client, question(&format!("s{n}"), call("c1", "look", "{}"))).await.policy_version
}

async fn until_judged_by(server: &Server, wanted: &str) {
    let (mut client, mut n) = (server.client().await, n_of(server));
    until("the policy to judge", async || judges(&mut client, &mut n).await == wanted).await;
}

/// Sessions of different checks have different names.
fn n_of(server: &Server) -> usize {
    static LOOKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let look = LOOKS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    usize::from(server.address.port()) * 1_000_000 + look * 10_000
}

async fn judged_by(server: &Server) -> String {
    judges(&mut server.client().await, &mut n_of(server)).await
}

async fn apply(server: &Server, text: &str) {
    let mut client = PolicyServiceClient::new(wire::channel(server.address).await);
    let request = ApplyPolicyRequest { text: text.to_owned(), ..ApplyPolicyRequest::default() };
    in_time("an answer", client.apply_policy(wire::from("olga", request))).await.expect("applied");
}

/// Number of occurrences in the log.
fn count_in_log(log: &Path, part: &str) -> usize {
    fs::read_to_string(log).expect("readable").matches(part).count()
}

async fn until_said(log: &Path, part: &str) {
    until(part, async || count_in_log(log, part) > 0).await;
}

/// Waits for enough checks of the file to be sure that nothing happens.
async fn three_looks() {
    tokio::time::sleep(Duration::from_millis(3_500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_applied_policy_judges_on_every_replica_within_two_seconds() {
    let stage = Stage::set().await;
    let (first, _) = stage.server("first", &[]);
    let (second, log) = stage.server("second", &[]);
    assert_eq!(judged_by(&second).await, "default");
    for n in 1..4 {
        apply(&first, &text(n)).await;
        let wanted = version(&text(n));
        assert_eq!(judged_by(&first).await, wanted, "here at once");
        within(REPLICAS, "the other replica", until_judged_by(&second, &wanted)).await;
    }
    for part in ["policy revision 3 became active, by olga", &policy::hash(&text(3))] {
        assert_eq!(count_in_log(&log, part), 1, "{part}");
    }
}

/// Runs a command of `callgate policy` on a server, as olga.
async fn policy_command(server: &Server, args: &str) -> (Option<i32>, String) {
    let url = format!("http://{}", server.address);
    let by: &[&str] = if args.contains("status") { &[] } else { &["--by", "olga"] };
    let (code, said, why) =
        ran(&[&["policy"], args.split(' ').collect::<Vec<_>>().as_slice(), by, &["--server", &url]].concat()).await;
    (code, said + &why)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_takes_sessions_on_every_replica_and_returns_them() {
    let stage = Stage::set().await;
    let (first, _) = stage.server("first", &[]);
    let (second, log) = stage.server("second", &[]);
    apply(&first, &text(1)).await;
    let file = stage.home.file("policy.yaml", &text(2));
    let (old, new) = (version(&text(1)), version(&text(2)));
    let hash = &policy::hash(&text(2))[..8];
    assert_eq!(policy_command(&first, &format!("apply {} --store-only", path(&file))).await.0, Some(0));
    let (code, said) = policy_command(&first, &format!("rollout start {hash}")).await;
    assert_eq!((code, said.contains("running, in shadow")), (Some(0), true), "{said}");
    within(REPLICAS, "the other replica", until_judged_by(&second, &old)).await;
    let (code, said) = policy_command(&second, "rollout status").await;
    assert_eq!((code, said.contains("No decision would differ.")), (Some(0), true), "{said}");
    policy_command(&first, &format!("rollout start {hash} --agent nobody")).await;
    let (code, said) = policy_command(&second, "rollout status").await;
    assert_eq!((code, said.contains("No call of either policy yet.")), (Some(0), true), "{said}");
    assert!(!said.contains("baseline: 0 calls") && !said.contains("No difference is marked"), "{said}");
    let (code, said) = policy_command(&first, &format!("rollout start {hash} --share 100% --agent billing")).await;
    assert_eq!((code, said.contains("100 % of sessions, agent billing")), (Some(0), true), "{said}");
    // A new session waits until every replica knows of it.
    let in_time = 2 * REPLICAS;
    within(in_time, "both replicas", async {
        until_judged_by(&first, &new).await;
        until_judged_by(&second, &new).await;
    })
    .await;
    let (code, said) = policy_command(&second, "rollout status").await;
    assert_eq!((code, said.contains("(100.0 %) in")), (Some(0), true), "{said}");
    let (code, said) = policy_command(&first, "rollout abort --note slow").await;
    assert_eq!((code, said.contains("aborted")), (Some(0), true), "{said}");
    assert_eq!(judged_by(&first).await, old, "here at once");
    within(REPLICAS, "the other replica", until_judged_by(&second, &old)).await;
    let (code, said) = policy_command(&first, "rollout promote").await;
    assert_eq!((code, said.contains("no rollout is running")), (Some(1), true), "{said}");
    assert_eq!(count_in_log(&log, "a policy's rollout to 100 % of sessions and the agents billing is aborted"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_file_judges_and_a_bad_one_does_not() {
    let stage = Stage::set().await;
    let file = stage.home.file("policy.yaml", &text(1));
    let (server, log) = stage.server("log", &["--policy", path(&file)]);
    assert_eq!(judged_by(&server).await, version(&text(1)));
    fs::write(&file, text(2)).expect("writable");
    until_judged_by(&server, &version(&text(2))).await;

    fs::write(&file, "policy_engine:\n  mode: loud\n  loops: {windw: 3}\n").expect("writable");
    until_said(&log, "the active policy stays as it was").await;
    let words = fs::read_to_string(&log).expect("readable");
    let line = words.lines().find(|line| line.contains("the active policy stays as it was")).expect("one line");
    for part in [path(&file), "line 2: policy_engine.mode: ", "line 3: policy_engine.loops.windw: "] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    three_looks().await;
    assert_eq!(count_in_log(&log, "the active policy stays as it was"), 1, "it is said once");
    assert_eq!(judged_by(&server).await, version(&text(2)));

    // An editor that writes a new file and puts it in the place of the old one.
    fs::rename(stage.home.file("policy.yaml~", &text(3)), &file).expect("the same folder");
    until_judged_by(&server, &version(&text(3))).await;
    fs::remove_file(&file).expect("it was there");
    until_said(&log, "the policy file cannot be read").await;
    assert_eq!(judged_by(&server).await, version(&text(3)));
    assert_eq!(stage.history().await, [1, 2, 3].map(|n| version(&text(n))));
    let from = format!("select count(*) from policy_activation where note = 'serve --policy {}'", path(&file));
    assert_eq!(stage.postgres.number(&from).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_looks_at_the_file_at_once_and_says_so() {
    let stage = Stage::set().await;
    let file = stage.home.file("policy.yaml", &text(1));
    let (server, log) = stage.server("log", &["--policy", path(&file)]);
    assert!(signal(server.pid(), "HUP"));
    until_said(&log, "the policy file has not changed since it was applied; nothing was done").await;
    fs::write(&file, "policy_engine: 3\n").expect("writable");
    until_said(&log, "the active policy stays as it was").await;
    three_looks().await;
    assert!(signal(server.pid(), "HUP"));
    until("it is said again", async || count_in_log(&log, "the active policy stays as it was") == 2).await;
    fs::write(&file, text(2)).expect("writable");
    assert!(signal(server.pid(), "HUP"));
    until_judged_by(&server, &version(&text(2))).await;
    assert_eq!(stage.history().await, [1, 2].map(|n| version(&text(n))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_file_is_not_applied_over_a_newer_activation() {
    let stage = Stage::set().await;
    let file = stage.home.file("policy.yaml", &text(1));
    let args = ["--policy", path(&file)];
    let (server, log) = stage.server("log", &args);
    apply(&server, &text(2)).await;
    assert!(signal(server.pid(), "HUP"));
    until_said(&log, "nothing was done").await;
    // Corrupted, and restored to an earlier policy of this process.
    fs::write(&file, "policy_engine: 3\n").expect("writable");
    until_said(&log, "the active policy stays as it was").await;
    fs::write(&file, text(1)).expect("writable");
    three_looks().await;
    assert_eq!(judged_by(&server).await, version(&text(2)));
    assert_eq!(stage.history().await, [1, 2].map(|n| version(&text(n))));

    // A start applies its file whenever another one is active.
    drop(server);
    let (server, _) = stage.server("again", &args);
    assert_eq!(judged_by(&server).await, version(&text(1)));
    assert_eq!(stage.history().await, [1, 2, 1].map(|n| version(&text(n))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_a_file_keeps_the_active_policy() {
    let stage = Stage::set().await;
    let file = stage.home.file("policy.yaml", &text(1));
    let (server, _) = stage.server("first", &["--policy", path(&file)]);
    server.kill();
    let (server, _) = stage.server("second", &[]);
    assert_eq!(judged_by(&server).await, version(&text(1)));
    assert!(server.greeting.contains(&version(&text(1))), "{}", server.greeting);
    drop(server);
    let (server, _) = stage.server("third", &["--policy", path(&file)]);
    assert_eq!(judged_by(&server).await, version(&text(1)));
    assert_eq!(stage.history().await, [version(&text(1))], "what is active is not activated again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_policy_of_a_newer_build_starts_no_server_but_a_file_does() {
    let stage = Stage::set().await;
    let (server, _) = stage.server("first", &[]);
    apply(&server, &text(1)).await;
    let newer = "policy_engine: {of_a_newer_build: true}\n";
    let hash = policy::hash(newer);
    for sql in [
        format!("insert into policy (tenant_id, hash, text, applied_by, note) values (1, '{hash}', '{newer}', '', '')"),
        format!(
            "insert into policy_activation (tenant_id, revision, hash, activated_by, note) \
             values (1, 2, '{hash}', '', '')"
        ),
    ] {
        stage.postgres.tamper(&sql).await;
    }
    three_looks().await;
    assert_eq!(judged_by(&server).await, version(&text(1)), "who runs goes on");
    drop(server);
    let (code, said) = fail_to_start(&["--listen", "127.0.0.1:0", "--database-url", &stage.url]).await;
    assert_eq!(code, Some(1));
    for part in ["the stored active policy cannot be used", "of_a_newer_build", "--policy FILE"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let file = stage.home.file("policy.yaml", &text(3));
    let (server, _) = stage.server("last", &["--policy", path(&file)]);
    assert_eq!(judged_by(&server).await, version(&text(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_file_at_start_leaves_the_stored_policy_alone() {
    let stage = Stage::set().await;
    let (server, _) = stage.server("first", &[]);
    apply(&server, &text(1)).await;
    drop(server);
    let file = stage.home.file("policy.yaml", "policy_engine:\n  mode: loud\n  loops: {windw: 3}\n");
    let (code, said) =
        fail_to_start(&["--listen", "127.0.0.1:0", "--database-url", &stage.url, "--policy", path(&file)]).await;
    assert_eq!(code, Some(1));
    for part in [path(&file), "line 2: policy_engine.mode: ", "line 3: policy_engine.loops.windw: "] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    assert_eq!(stage.history().await, [version(&text(1))]);
    assert_eq!(stage.postgres.number("select count(*) from policy").await, 1);
}
