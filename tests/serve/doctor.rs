//! `callgate doctor`: reports the problems of a server's settings, and changes nothing.

use serde_json::Value;

use crate::{
    common::{
        certificates::{Authority, write_atomically},
        postgres::Postgres,
    },
    server::{Home, Server, path, ran},
};

/// The checks of a run, and its exit code.
async fn run_doctor(args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let (code, said, error) = ran(&[&["doctor", "--json"], args].concat()).await;
    let lines = said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")));
    let checks: Vec<Value> = lines.collect();
    assert!(!checks.is_empty(), "{error}");
    (code, checks)
}

fn find_check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    let mut all = checks.iter().filter(|check| check["check"] == name);
    all.next().unwrap_or_else(|| panic!("{name} was not looked at: {checks:?}"))
}

#[track_caller]
fn assert_is(checks: &[Value], name: &str, status: &str, cure: &str) {
    let check = find_check(checks, name);
    assert_eq!(check["status"], status, "{check}");
    assert!(check["cure"].as_str().unwrap_or_default().contains(cure), "{check}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_reports_what_a_server_would_find_and_changes_nothing() {
    let (postgres, home) = (Postgres::start_empty().await, Home::empty());
    let url = postgres.url();
    let policy = home.file("policy.yaml", "policy_engine: {}\n");
    let args = ["--database-url", url.as_str(), "--server", "http://127.0.0.1:9", "--policy", path(&policy)];
    let (code, checks) = run_doctor(&args).await;
    assert_eq!(code, Some(0), "{checks:?}");
    assert!(find_check(&checks, "migrations")["found"].as_str().expect("text").contains("there is no schema yet"));
    assert_eq!(postgres.number("select count(*) from pg_namespace where nspname = 'callgate'").await, 0);

    let server = Server::with(&["--database-url", url.as_str(), "--policy", path(&policy)]);
    let at = format!("http://{}", server.address);
    let args = ["--database-url", url.as_str(), "--server", at.as_str(), "--policy", path(&policy)];
    let (code, checks) = run_doctor(&args).await;
    assert_eq!(code, Some(0), "{checks:?}");
    for name in ["fsync", "migrations", "tables", "row_security", "policy", "health", "version"] {
        assert_is(&checks, name, "ok", "");
    }

    let database = postgres.options.get_database().expect("a database").to_owned();
    for sql in [
        format!("alter database {database} set default_transaction_isolation = 'serializable'"),
        format!("alter database {database} set statement_timeout = '900ms'"),
        format!("alter database {database} set synchronous_commit = off"),
        "alter system set max_connections = 10".to_owned(),
    ] {
        postgres.tamper(&sql).await;
    }
    for sql in [
        "select pg_create_physical_replication_slot('left_behind', true)",
        "delete from _sqlx_migrations where version = 130",
        "update _sqlx_migrations set version = 9999 where version = 110",
    ] {
        postgres.tamper(sql).await;
    }
    std::fs::write(&policy, "policy_engine: {nonsense: 1}\n").expect("writable");
    let (code, checks) = run_doctor(&args).await;
    assert_eq!(code, Some(1));
    assert_is(&checks, "synchronous_commit", "wrong", "alter database");
    assert_is(&checks, "default_transaction_isolation", "warning", "read committed");
    assert_is(&checks, "timeouts", "warning", "statement_timeout = 0");
    assert_is(&checks, "replication_slots", "warning", "pg_drop_replication_slot");
    assert_is(&checks, "migrations", "warning", "start a server");
    assert_is(&checks, "policy", "wrong", "callgate policy check");
    // For people, the same.
    let (code, said, _) = ran(&[&["doctor"], args.as_slice()].concat()).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("wrong      synchronous_commit: off") && said.contains("-> alter database"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80 || !line.contains(' ')), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_migration_rights_and_unusable_files_are_reported() {
    let (postgres, home) = (Postgres::start_empty().await, Home::with_cluster().await);
    postgres.tamper("create role runner login password 'runner'").await;
    let runner = postgres.url().replacen("callgate:", "runner:runner@", 1);
    let password = runner.find("runner@").expect("it") + "runner@".len();
    let host = runner[password..].find('@').expect("a host");
    let runner = format!("{}{}", &runner[..password], &runner[password + host + 1..]);
    let authority = Authority::new("own");
    let (certificate, _) = authority.client_until(&["localhost"], &[], Some(1_700_000_000)).write(home.folder());
    let (other, key) = (home.folder().join("other"), authority.server());
    std::fs::create_dir(&other).expect("a folder");
    let (_, key) = key.write(&other);
    let (ca, crl) = (
        write_atomically(home.folder(), "ca.pem", &authority.pem),
        write_atomically(home.folder(), "ca.crl", &authority.revocation_list(&[], 2025)),
    );
    let args = [
        "--database-url",
        &runner,
        "--server",
        "http://127.0.0.1:9",
        "--tls-cert",
        path(&certificate),
        "--tls-key",
        path(&key),
        "--client-ca",
        path(&ca),
        "--client-crl",
        path(&crl),
        "--auth",
        "/nowhere.yaml",
    ];
    let (code, checks) = run_doctor(&args).await;
    assert_eq!(code, Some(1));
    assert_is(&checks, "migrate", "wrong", "grant create on database");
    assert_is(&checks, "certificates", "wrong", "intermediate certificates");
    assert_is(&checks, "certificate_end", "wrong", "replace the file");
    assert_is(&checks, "client_crl_end", "wrong", "next list");
    assert_is(&checks, "auth", "wrong", "fix the file");

    // One cause is reported once, without a library's name, and never with a password.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = plain.local_addr().expect("bound");
    std::thread::spawn(move || {
        for client in plain.incoming().map_while(Result::ok) {
            let mut client = client;
            let _ = std::io::Write::write_all(&mut client, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let away = "postgres://plane:s3cret@127.0.0.1:9/callgate";
    let (server, collector) = (format!("https://{at}"), "http://127.0.0.1:9");
    let args = ["--database-url", away, "--server", &server, "--otlp-endpoint", collector];
    let gone = ["--tls-cert", "/nowhere.crt", "--tls-key", "/nowhere.key"];
    let (code, checks) = run_doctor(&[&args[..], &gone].concat()).await;
    assert_eq!(code, Some(1));
    let told: Vec<&str> = checks.iter().filter_map(|check| check["found"].as_str()).collect();
    let once = |part: &str| assert_eq!(told.iter().filter(|found| found.contains(part)).count(), 1, "{part}: {told:?}");
    once("/nowhere.crt cannot be read");
    once("the database is unavailable: 127.0.0.1:9: Connection refused");
    once("http://127.0.0.1:9 accepts no traces, no metrics, no logs: Connection refused");
    once("the server does not use TLS: use http://");
    let all = format!("{checks:?}");
    for part in ["InvalidContentType", "Tonic", "s3cret", "transport error"] {
        assert!(!all.contains(part), "{part}: {all}");
    }

    // A check starts no private database.
    let data_dir = home.data_dir();
    let (code, checks) = run_doctor(&["--data-dir", path(&data_dir), "--server", "http://127.0.0.1:9"]).await;
    assert_eq!(code, Some(0), "{checks:?}");
    assert!(find_check(&checks, "data")["found"].as_str().expect("text").contains("it does not run"));
    let of_database: Vec<&Value> = checks.iter().filter(|check| check["area"] == "database").collect();
    assert!(of_database.iter().all(|check| check["status"] == "not_looked_at"), "{of_database:?}");
    assert_eq!(home.postmaster(), None);
}
