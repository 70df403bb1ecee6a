//! Restore with concurrent erasure, and with planted links.

use std::{fs, os::unix::fs::symlink, process::Stdio, time::Duration};

use callgate_proto::v1;

use crate::{
    common::{
        process::signal,
        until,
        wire::{Client, call, evaluate, question, record, success},
    },
    server::{Home, Server, path, program, ran},
};

async fn works(client: &mut Client, session: &str, user: &str) {
    let mut asked = question(session, call("c1", "look", "{}"));
    asked.caller = asked.caller.map(|caller| v1::Caller { user_id: user.to_owned(), ..caller });
    evaluate(client, asked).await;
    record(client, success(session, "c1", &format!("seen by {user}"))).await;
}

async fn types(line: &str, data_dir: &str) -> (Option<i32>, String) {
    let words: Vec<&str> = line.split(' ').chain(["--data-dir", data_dir]).collect();
    let (code, said, error) = ran(&words).await;
    (code, format!("{said}{error}"))
}

async fn stop_server(server: Server) {
    assert!(signal(server.pid(), "TERM"));
    let (status, _) = server.wait_for_end(Duration::from_secs(30)).await;
    assert!(status.success(), "{status}");
}

/// Shuts a server down, and backs up its data directory.
async fn backed_up(home: &Home) -> String {
    let data_dir = home.data_dir();
    let server = Server::start(home, &[]);
    let mut client = server.client().await;
    works(&mut client, "one", "account-7").await;
    works(&mut client, "two", "account-8").await;
    let folder = path(&home.folder().join("backup")).to_owned();
    let (code, said) = types(&format!("backup {folder}"), path(&data_dir)).await;
    assert_eq!(code, Some(0), "{said}");
    // Erased since.
    let (code, said) = types("forget user account-7 --yes --reason request-12", path(&data_dir)).await;
    assert!(code == Some(0) && said.contains("Deleted 1 "), "{said}");
    drop(client);
    stop_server(server).await;
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_after_a_backup_is_repeated_by_its_restore() {
    let home = Home::with_cluster().await;
    let folder = backed_up(&home).await;
    let new = home.folder().join("new");
    // During a restore there is nothing to erase, and nothing is created in its place.
    let mut restore = program();
    restore.args(["restore", &folder, "--data-dir", path(&new)]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut restore = restore.spawn().expect("it runs");
    let staging = home.folder().join("new.restoring");
    until("the new cluster", async || staging.join("pg").exists()).await;
    let (code, said) = types("forget user account-7 --yes --reason request-12", path(&new)).await;
    assert!(code == Some(1) && !new.join("pg").exists(), "{said}");
    let (code, said) = types("forget user account-7 --yes --reason request-12", path(&staging)).await;
    assert_ne!(code, Some(0), "what is not whole is no database: {said}");
    let ended = tokio::task::spawn_blocking(move || restore.wait()).await.expect("no panic").expect("a child");
    assert!(ended.success(), "nobody else has kept it from that");
    let served = Server::with(&["--data-dir", path(&new)]);
    let rows = |name: &str| home.folder().join(name);
    let out = |name: &str| path(&rows(name)).to_owned();
    let (code, said) = types(&format!("export user account-7 --out {}", out("before")), path(&new)).await;
    assert!(code == Some(0) && fs::read_to_string(rows("before")).expect("rows").contains("seen by"), "{said}");
    let (code, said) = types("forget user account-7 --yes --reason request-12", path(&new)).await;
    assert!(code == Some(0) && said.contains("1 call tree with 1 session of "), "{said}");
    let (code, said) = types(&format!("export user account-7 --out {}", out("after")), path(&new)).await;
    assert!(code == Some(1) && said.contains("[SUBJECT_UNKNOWN]"), "{said}");
    let (code, said) = types(&format!("export user account-8 --out {}", out("other")), path(&new)).await;
    assert!(code == Some(0) && fs::read_to_string(rows("other")).expect("rows").contains("seen by"), "{said}");
    let (code, said, error) = ran(&["audit", "verify", "--server", &format!("http://{}", served.address)]).await;
    assert_eq!(code, Some(0), "{said}{error}");
    stop_server(served).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_in_the_way_of_a_restore_lead_nowhere() {
    let home = Home::with_cluster().await;
    let folder = backed_up(&home).await;
    let (victim, new) = (home.folder().join("victim"), home.folder().join("new"));
    fs::create_dir(&victim).expect("made");
    fs::write(victim.join("kept"), "mine").expect("written");
    let links = ["new.restoring", "callgate-verifying"].map(|name| home.folder().join(name));
    for target in [&victim, &home.folder().join("nowhere")] {
        links.iter().for_each(|link| symlink(target, link).expect("linked"));
        for line in [format!("restore {folder} --data-dir {}", path(&new)), format!("backup verify {folder}")] {
            let words: Vec<&str> = line.split(' ').collect();
            let (code, said, error) = ran(&words).await;
            assert!(code == Some(1) && error.contains("links are not followed"), "{line}: {said}{error}");
        }
        assert!(!new.exists() && !home.folder().join("nowhere").exists());
        links.iter().for_each(|link| fs::remove_file(link).expect("it is there"));
    }
    let left: Vec<_> = fs::read_dir(&victim).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["kept"]);
}
