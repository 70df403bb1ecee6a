//! TLS to PostgreSQL: a real server that requires it, a certificate of an authority, and its verification.

use std::{
    fs::{self, Permissions},
    net::TcpListener,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use callgate_store::{OpenError, StoreError, parse_url};
use sqlx::ConnectOptions as _;
use tempfile::TempDir;

use crate::common::{
    certificates::{Authority, write_atomically},
    citus,
    gates::{ask, evaluate, gate_on, open, policy},
    postgres::{Postgres, folder, seed, template},
    process::signal,
    until,
};

/// A server that listens on a port, and takes only who speaks TLS.
struct EncryptedServer {
    server: Child,
    port: u16,
    password: String,
    folder: TempDir,
}

impl EncryptedServer {
    /// A server with a certificate for the name `localhost` alone.
    async fn start(authority: &Authority) -> Self {
        let folder = folder();
        let data_dir = folder.path().join("data");
        seed(&template().await, &data_dir);
        let (pgdata, rules) = (data_dir.join("pg"), data_dir.join("rules"));
        let owner = fs::metadata(&pgdata).expect("a cluster");
        fs::write(&rules, "hostssl all all 127.0.0.1/32 scram-sha-256\n").expect("writable");
        let (certificate, key) = authority.server_named(&["localhost"]).write(&pgdata);
        for path in [&rules, &certificate, &key] {
            chown(path, Some(owner.uid()), Some(owner.gid())).expect("given");
            fs::set_permissions(path, Permissions::from_mode(0o600)).expect("the owner's alone");
        }
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let setting = |name: &str, value: &str| ["-c".to_owned(), format!("{name}={value}")];
        let shown = |path: &PathBuf| path.display().to_string();
        let settings = [
            setting("listen_addresses", "127.0.0.1"),
            setting("unix_socket_directories", ""),
            setting("ssl", "on"),
            setting("ssl_cert_file", &shown(&certificate)),
            setting("ssl_key_file", &shown(&key)),
            setting("hba_file", &shown(&rules)),
        ];
        let mut command = Command::new(program().await);
        command.arg("-D").arg(&pgdata).args(["-p", &port.to_string()]).args(settings.concat());
        // Root may not run it.
        if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            command.uid(owner.uid()).gid(owner.gid());
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let password = fs::read_to_string(data_dir.join("password")).expect("a password").trim_end().to_owned();
        let server = command.spawn().expect("PostgreSQL starts");
        let started = Self { server, port, password, folder };
        let (url, answers) = (started.url("localhost", "require"), async |url: &str| {
            parse_url(url).expect("a URL").connect().await.is_ok()
        });
        until("PostgreSQL", async || answers(&url).await).await;
        started
    }

    fn url(&self, host: &str, mode: &str) -> String {
        let Self { port, password, .. } = self;
        format!("postgres://callgate:{password}@{host}:{port}/callgate?sslmode={mode}")
    }

    /// As `url`, for who trusts this authority.
    fn trusting(&self, host: &str, mode: &str, authority: &Authority) -> String {
        let path = write_atomically(self.folder.path(), "ca.crt", &authority.pem);
        format!("{}&sslrootcert={}", self.url(host, mode), path.display())
    }
}

impl Drop for EncryptedServer {
    fn drop(&mut self) {
        signal(self.server.id(), "INT");
        let _ = self.server.wait();
    }
}

/// PostgreSQL's own, as a running server has it.
async fn program() -> PathBuf {
    let postgres = Postgres::start().await;
    fs::read_link(format!("/proc/{}/exe", postgres.pid().expect("it runs"))).expect("a program")
}

async fn fail_to_open(url: &str) -> OpenError {
    open(parse_url(url).expect("a URL")).await.expect_err("refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_database_has_to_show_a_certificate_of_its_authority_and_of_its_name() {
    if citus::is_wanted() {
        return;
    }
    let authority = Authority::new("ours");
    let server = EncryptedServer::start(&authority).await;

    let url = server.trusting("localhost", "verify-full", &authority);
    let gate = gate_on(open(parse_url(&url).expect("a URL")).await.expect("a store"), &policy(&[]));
    assert!(evaluate(&gate, ask("s", "c1", "look", "{}")).await.verdict.permit.is_some());
    let mut looking = parse_url(&url).expect("a URL").connect().await.expect("a connection");
    let sql = "select count(*) filter (where ssl), count(*) from pg_stat_ssl join pg_stat_activity using (pid)
               where application_name like 'callgate %'";
    let (encrypted, all): (i64, i64) = sqlx::query_as(sql).fetch_one(&mut looking).await.expect("counts");
    assert!(all >= 2 && encrypted == all, "{encrypted} of {all}");

    // A certificate of another name or authority is rejected.
    let elsewhere = fail_to_open(&server.trusting("127.0.0.1", "verify-full", &authority)).await;
    assert!(matches!(&elsewhere, OpenError::Tls(why) if why.contains("sslrootcert")), "{elsewhere}");
    open(parse_url(&server.trusting("127.0.0.1", "verify-ca", &authority)).expect("a URL"))
        .await
        .expect("no name asked");
    let stranger = Authority::new("somebody else");
    for mode in ["verify-ca", "verify-full"] {
        let error = fail_to_open(&server.trusting("localhost", mode, &stranger)).await;
        assert!(matches!(&error, OpenError::Tls(why) if !why.contains("sslmode=disable")), "{error}");
    }
    let error = fail_to_open(&server.url("localhost", "verify-full")).await;
    assert!(matches!(error, OpenError::Tls(_)), "public authorities have not signed it: {error}");
    let clear = fail_to_open(&server.url("localhost", "disable")).await;
    assert!(matches!(clear, OpenError::Store(StoreError::Unreachable(_))), "{clear}");
}
