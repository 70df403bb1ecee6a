//! `callgate backup` and `callgate restore`, and the restored state.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use callgate_proto::v1::Decision;

use crate::{
    common::{
        process::signal,
        until,
        wire::{Client, call, evaluate, question, record, success},
    },
    server::{Home, Server, fail_to_start, path, program, ran},
};

const POLICY: &str = "policy_engine:
  tool_schemas: {pay: {once: true}}
";
const END: Duration = Duration::from_secs(30);

async fn pay(client: &mut Client, invoice: u32) -> Decision {
    let (session, arguments) = (format!("s{invoice}"), format!(r#"{{"invoice":{invoice}}}"#));
    evaluate(client, question(&session, call("c1", "pay", &arguments))).await.decision()
}

async fn paid(client: &mut Client, invoice: u32) {
    assert_eq!(pay(client, invoice).await, Decision::Allow);
    record(client, success(&format!("s{invoice}"), "c1", "paid")).await;
}

async fn stop_server(server: Server) {
    assert!(signal(server.pid(), "TERM"));
    let (status, _) = server.wait_for_end(END).await;
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn online_backup_is_complete_after_its_restore() {
    let home = Home::with_cluster().await;
    let (policy, data_dir) = (home.file("policy.yaml", POLICY), home.data_dir());
    let (folder, new) = (home.folder().join("backup"), home.folder().join("new"));
    let server = Server::start(&home, &["--policy", path(&policy)]);
    let mut client = server.client().await;
    paid(&mut client, 1).await;
    assert_eq!(pay(&mut client, 2).await, Decision::Allow, "in flight");
    let mut analyst = home.connect().await;
    sqlx::raw_sql("create role ann login password 'x'; grant callgate_analyst to ann")
        .execute(&mut analyst)
        .await
        .expect("a role");
    let backup = ["backup", path(&folder), "--data-dir", path(&data_dir)];
    let (code, said, error) = ran(&backup).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains("holds the database of"), "{said}");
    paid(&mut client, 3).await;
    let (code, _, error) = ran(&backup).await;
    assert!(code == Some(1) && error.contains("never overwrites"), "{error}");

    let restore =
        |to: &Path| ["restore".to_owned(), path(&folder).to_owned(), "--data-dir".to_owned(), path(to).to_owned()];
    let restored = async |to: &Path| {
        let args = restore(to);
        ran(&args.each_ref().map(String::as_str)).await
    };
    let (code, _, error) = restored(&data_dir).await;
    assert!(code == Some(1) && error.contains("is not empty"), "{error}");

    // Killed in the middle, it left nothing that looks like a database.
    let staging = home.folder().join("new.restoring");
    let mut killed = program();
    killed.args(restore(&new)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = killed.spawn().expect("it runs");
    until("the new cluster", async || staging.join("pg").exists()).await;
    killed.kill().expect("it runs");
    killed.wait().expect("a child");
    assert!(!new.exists());
    let mut relative = program();
    relative.current_dir(home.folder()).args(["restore", "backup", "--data-dir", "new"]);
    let ended = relative.output().expect("it runs");
    let [said, error] = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(ended.status.success(), "{error}");
    assert!(said.contains("docs/operations.md#backup-and-restore") && !staging.exists(), "{said}");

    drop(client);
    stop_server(server).await;
    let server = Server::with(&["--data-dir", path(&new), "--policy", path(&policy)]);
    let mut client = server.client().await;
    assert_eq!(pay(&mut client, 1).await, Decision::Reuse, "it was paid");
    assert_ne!(pay(&mut client, 2).await, Decision::Reuse, "nobody has said what came of it");
    record(&mut client, success("s2", "c1", "paid")).await;
    assert_eq!(pay(&mut client, 2).await, Decision::Reuse);
    assert_eq!(pay(&mut client, 3).await, Decision::Allow, "what came after the backup is not known");
    let (_, said, _) = ran(&["psql", "--data-dir", path(&new), "--", "-Atc", MEMBERS]).await;
    assert_eq!(said, "callgate_analyst\n", "roles come along");
    stop_server(server).await;

    let dump = folder.join("database.dump");
    fs::write(&dump, &fs::read(&dump).expect("a dump")[1..]).expect("writable");
    let (code, _, error) = restored(&home.folder().join("other")).await;
    assert!(code == Some(1) && error.contains("database.dump is damaged"), "{error}");
}

/// Sorted names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// Kills a command as soon as something holds.
async fn killed_when(args: &[&str], what: &str, holds: impl Fn() -> bool) {
    let mut killed = program();
    killed.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = killed.spawn().expect("it runs");
    until(what, async || holds()).await;
    assert!(killed.try_wait().expect("a child").is_none(), "it ended before: {what}");
    killed.kill().expect("it runs");
    killed.wait().expect("a child");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_are_verified_and_kept_in_number_and_one_that_was_killed_is_none() {
    let home = Home::with_cluster().await;
    let (policy, data_dir) = (home.file("policy.yaml", POLICY), home.data_dir());
    let shelf = home.folder().join("shelf");
    fs::create_dir(&shelf).expect("made");
    fs::create_dir(shelf.join("mine")).expect("made");
    let server = Server::start(&home, &["--policy", path(&policy)]);
    let mut client = server.client().await;
    paid(&mut client, 1).await;
    let backup = ["backup", "--in", path(&shelf), "--keep", "1", "--data-dir", path(&data_dir)];

    // It waits for a table, and is killed there.
    let mut holder = home.connect().await;
    sqlx::raw_sql("begin; lock table callgate.outcome").execute(&mut holder).await.expect("locked");
    let unfinished = || names(&shelf).iter().any(|name| name.contains(".unfinished-"));
    killed_when(&backup, "a backup that is being made", unfinished).await;
    assert!(unfinished() && names(&shelf).len() == 2, "nothing has the name of a backup: {:?}", names(&shelf));
    sqlx::raw_sql("rollback").execute(&mut holder).await.expect("unlocked");

    let verified: Vec<&str> = backup.into_iter().chain(["--verify"]).collect();
    let (code, said, error) = ran(&verified).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains("Sessions: 1. Calls: 1. Outcomes: 1. The audit chain is intact, with 2 ent"), "{said}");
    let [first, mine] = &names(&shelf)[..] else { panic!("something was left: {:?}", names(&shelf)) };
    assert!(first.starts_with("callgate-2") && mine == "mine");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let (code, said, error) = ran(&backup).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains(&format!("{first} was removed")), "{said}");
    assert!(names(&shelf).len() == 2 && !names(&shelf).contains(first), "{:?}", names(&shelf));

    // Tampering is reported, of a backup and of a database; a tampered one removes nothing.
    let kept = names(&shelf);
    sqlx::raw_sql(
        "alter table callgate.audit disable trigger all; update callgate.audit set kind = 'x' where number = 1",
    )
    .execute(&mut holder)
    .await
    .expect("tampered");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let (code, _, error) = ran(&verified).await;
    assert!(
        code == Some(1) && error.contains("its audit log was tampered with") && error.contains("tenant 1"),
        "{error}"
    );
    assert_eq!(names(&shelf), kept);
    let whole = shelf.join(&kept[0]);
    let (code, said, error) = ran(&["backup", "verify", path(&whole)]).await;
    assert!(code == Some(0) && said.contains("The audit chain is intact"), "{said}{error}");
    assert_eq!(names(&shelf), kept, "the scratch database is gone");
    drop((client, holder));
    stop_server(server).await;
}

const MEMBERS: &str = "select r.rolname from pg_auth_members a join pg_roles r on r.oid = a.roleid
    join pg_roles m on m.oid = a.member where m.rolname = 'ann'";

/// The programs of another major version than those that tests use.
fn other() -> Option<PathBuf> {
    let other = std::env::var_os("CALLGATE_TEST_PG_OTHER").map(PathBuf::from);
    if other.is_none() {
        let how = "set CALLGATE_TEST_PG_OTHER to the folder of a newer PostgreSQL's programs";
        std::io::Write::write_all(&mut std::io::stderr(), format!("skipped: {how}\n").as_bytes()).expect("written");
    }
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_private_database_moves_to_another_major_version() {
    let Some(other) = other() else { return };
    let home = Home::with_cluster().await;
    let (policy, data_dir) = (home.file("policy.yaml", POLICY), home.data_dir());
    let server = Server::start(&home, &["--policy", path(&policy)]);
    let mut client = server.client().await;
    paid(&mut client, 1).await;
    drop(client);
    stop_server(server).await;

    let (code, error) = fail_to_start(&["--data-dir", path(&data_dir), "--pg-bin", path(&other)]).await;
    assert!(code == Some(1) && error.contains("`callgate restore` by the new ones"), "{error}");
    let kept = home.folder().join("kept");
    let (code, _, error) = ran(&["backup", path(&kept), "--data-dir", path(&data_dir)]).await;
    assert_eq!(code, Some(0), "{error}");
    fs::rename(&data_dir, home.folder().join("old")).expect("renamed");
    let restore = ["restore", path(&kept), "--data-dir", path(&data_dir), "--pg-bin", path(&other)];
    let (code, _, error) = ran(&restore).await;
    assert_eq!(code, Some(0), "{error}");

    let args = ["--policy", path(&policy), "--pg-bin", path(&other)];
    let server = Server::start(&home, &args);
    let mut client = server.client().await;
    assert_eq!(pay(&mut client, 1).await, Decision::Reuse);
    paid(&mut client, 2).await;
    drop(client);
    stop_server(server).await;
}
