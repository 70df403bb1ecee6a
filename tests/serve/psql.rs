//! `callgate psql`: a shell on the private database of a server that runs.

use crate::server::{Home, Server, path, ran};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_opens_the_private_database_and_takes_its_own_arguments() {
    let home = Home::with_cluster().await;
    let data_dir = home.data_dir();
    let psql = ["psql", "--data-dir", path(&data_dir), "--", "-Atc", "select current_user, current_database()"];
    let (code, _, said) = ran(&psql).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("no private PostgreSQL runs in") && said.contains("callgate serve"), "{said}");

    let server = Server::start(&home, &[]);
    assert!(server.greeting.contains("callgate psql --data-dir"), "{}", server.greeting);
    let (code, told, said) = ran(&psql).await;
    assert_eq!((code, told.as_str()), (Some(0), "callgate|callgate\n"), "{said}");
}
