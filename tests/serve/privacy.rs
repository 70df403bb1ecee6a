//! `callgate forget` and `callgate export` as processes: over a server, and on its database.

use callgate_proto::v1;

use crate::{
    common::{
        postgres::Postgres,
        wire::{call, evaluate, question, record, success},
    },
    server::{Home, Server, path, ran},
};

async fn types(line: &str, more: &[&str]) -> (Option<i32>, String) {
    let (code, said, error) = ran(&[&line.split(' ').collect::<Vec<_>>(), more].concat()).await;
    (code, format!("{said}{error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_given_out_and_forgotten_as_it_is_typed() {
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &[]);
    let (url, mut agent) = (format!("http://{}", server.address), server.client().await);
    for (session, user) in [("one", "account-7"), ("two", "account-8")] {
        let mut asked = question(session, call("c1", "look", "{}"));
        asked.caller = asked.caller.map(|caller| v1::Caller { user_id: user.to_owned(), ..caller });
        evaluate(&mut agent, asked).await;
        record(&mut agent, success(session, "c1", &format!("seen by {user}"))).await;
    }
    let over = ["--server", url.as_str()];
    let file = home.data_dir().with_file_name("rows.jsonl");
    let to_file = [over[0], over[1], "--out", path(&file)];
    let (code, said) = types("export user account-7 --reason asked", &to_file).await;
    assert_eq!((code, said.as_str()), (Some(0), "3 rows.\n"));
    let rows = std::fs::read_to_string(&file).expect("a file");
    assert!(rows.contains("seen by account-7") && !rows.contains("account-8"), "{rows}");
    assert_eq!(types("export user account-7", &to_file).await.0, Some(1), "the file is there");

    let (code, said) = types("forget user account-7", &over).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("would delete 1 call tree with 1 session of ") && said.contains("--yes"), "{said}");
    let (code, said) = types("forget user account-7 --yes --reason for-account-7", &over).await;
    assert!(code == Some(1) && said.contains("names whom it is about"), "{said}");
    let (code, said) = types("forget user account-7 --yes --reason asked", &over).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Deleted 1 call tree with 1 session of "), "{said}");
    for line in ["forget user account-7 --yes", "export user account-7"] {
        let (code, said) = types(line, &over).await;
        assert!(code == Some(1) && said.contains("[SUBJECT_UNKNOWN]"), "{line}: {said}");
    }

    let data_dir = home.data_dir();
    let on_database = ["--data-dir", path(&data_dir)];
    let (code, said) = types("forget session two --yes", &on_database).await;
    assert!(code == Some(0) && said.contains("Deleted 1 "), "{said}");
    let (code, said) = types("audit verify", &over).await;
    assert_eq!(code, Some(0), "{said}");
    let (_, said) = types("audit list", &over).await;
    assert!(said.contains("forgotten") && said.contains("exported") && !said.contains("account-7"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_of_calls_that_fails_leaves_no_file() {
    let (postgres, home) = (Postgres::start_empty().await, Home::empty());
    let (url, file) = (postgres.url(), home.folder().join("calls.csv"));
    let to_file = ["--database-url", url.as_str(), "--out", path(&file)];
    let (code, said) = types("export calls --since yesterday", &to_file).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("refused a statement") && !file.exists(), "{said}");
}
