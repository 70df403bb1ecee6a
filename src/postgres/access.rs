//! Access control: password authentication. The password file beside the cluster is readable by callgate's user alone,
//! so that other processes of the database's account cannot become its superuser.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::account::Account;
use super::binaries::Binaries;
use super::cluster::NAME;
use super::error::PrivatePostgresError;
use super::layout::{Layout, PORT};
use super::process::{self, last_lines};
use super::scram;

/// Contents of `hba_file`, independent of the cluster's own file.
const RULES: &str = "\
# Written by callgate at each start. The password is in the file `password` beside this one; `callgate psql` uses it.
local all all scram-sha-256
local replication all scram-sha-256
";

/// Timeout of setting the password, which may include crash recovery.
const SINGLE_USER_MAX: Duration = Duration::from_secs(300);
const OUTPUT_LINES_MAX: usize = 20;
const PASSWORD_BYTES: usize = 24;
const OWNER_ONLY: u32 = 0o600;
const READABLE: u32 = 0o644;

/// Connection parameters, for this process and its user alone.
#[derive(Clone)]
pub struct ConnectionParams {
    /// The directory of the server's socket.
    pub socket_dir: PathBuf,
    /// The number in the socket's name.
    pub port: u16,
    /// The owner of the database.
    pub user: &'static str,
    /// Its name.
    pub database: &'static str,
    password: String,
}

impl std::fmt::Debug for ConnectionParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("socket_dir", &self.socket_dir)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl ConnectionParams {
    /// From the server's socket, and the password of the data directory.
    pub(super) fn read(layout: &Layout, socket_dir: &Path) -> Result<Self, PrivatePostgresError> {
        let path = &layout.password;
        let password = fs::read_to_string(path).map_err(PrivatePostgresError::io("read", path))?;
        let password = password.trim_end().to_owned();
        Ok(Self { socket_dir: socket_dir.to_owned(), port: PORT, user: NAME, database: NAME, password })
    }

    /// As a URL with the password: not for logs or command lines.
    #[must_use]
    pub fn url(&self) -> String {
        let Self { port, user, database, password, .. } = self;
        let mut host = String::new();
        for byte in self.socket_dir.as_os_str().as_encoded_bytes() {
            let _ = write!(host, "%{byte:02X}");
        }
        format!("postgresql://{user}:{password}@localhost:{port}/{database}?host={host}&sslmode=disable")
    }

    /// As environment variables of PostgreSQL's programs.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, std::ffi::OsString); 5] {
        [
            ("PGHOST", self.socket_dir.clone().into()),
            ("PGPORT", self.port.to_string().into()),
            ("PGUSER", self.user.into()),
            ("PGDATABASE", self.database.into()),
            ("PGPASSWORD", self.password.clone().into()),
        ]
    }
}

/// Writes the rules into callgate's own file, readable by the database's account.
pub(super) fn write_rules(layout: &Layout) -> Result<(), PrivatePostgresError> {
    replace(&layout.rules, RULES, READABLE)
}

/// Sets the password where there is none yet, and makes the database. The server must not run.
///
/// `stranger` is a pid that PostgreSQL would take for a server's, see [`super::takeover`].
pub(super) async fn ensure(
    layout: &Layout,
    binaries: &Binaries,
    account: Option<&Account>,
    stranger: Option<u32>,
) -> Result<(), PrivatePostgresError> {
    let path = &layout.password;
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => {
            let is_open = meta.mode() & 0o077 != 0;
            let close = || fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY));
            return if is_open {
                close().map_err(PrivatePostgresError::io("change the mode of", path))
            } else {
                Ok(())
            };
        }
        Ok(_) => {
            return Err(PrivatePostgresError::ForeignData { path: path.clone(), what: "is not a file" });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(PrivatePostgresError::io("read", path)(error)),
    }
    let random = || random().map_err(PrivatePostgresError::io("read", "/dev/urandom"));
    let (password, salt) = (hex::encode(random()?), random()?);
    let verifier = scram::verifier(&password, &salt);
    // The database first; an existing one is no failure.
    let statements = format!("create database {NAME}\nalter role {NAME} with password '{verifier}'\n");
    single_user(&statements, layout, binaries, account, stranger).await?;
    // Last: a password that is written down is set.
    replace(path, &format!("{password}\n"), OWNER_ONLY)
}

/// Runs statements, one per line, in single-user mode, which needs no password.
async fn single_user(
    statements: &str,
    layout: &Layout,
    binaries: &Binaries,
    account: Option<&Account>,
    stranger: Option<u32>,
) -> Result<(), PrivatePostgresError> {
    let program = binaries.program("postgres");
    let mut command = process::command(&program, account);
    command.arg("--single").arg("-D").arg(&layout.pgdata);
    // The log must not contain the password, regardless of the configuration file.
    for setting in [
        "log_statement=none",
        "log_min_duration_statement=-1",
        "log_min_error_statement=panic",
        "logging_collector=off",
        "log_destination=stderr",
    ] {
        command.arg("-c").arg(setting);
    }
    command.arg("template1");
    if let Some(pid) = stranger {
        command.env("PG_GRANDPARENT_PID", pid.to_string());
    }
    let output = process::output_of(command, statements.as_bytes(), SINGLE_USER_MAX)
        .await
        .map_err(PrivatePostgresError::io("run", &program))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let is_problem = |line: &str| {
        ["ERROR:", "FATAL:", "PANIC:"].iter().any(|level| line.contains(level)) && !line.contains("already exists")
    };
    if output.status.success() && !text.lines().any(is_problem) {
        return Ok(());
    }
    Err(PrivatePostgresError::StartFailed {
        data_dir: layout.root.clone(),
        status: output.status.to_string(),
        log: PathBuf::from("its output"),
        tail: last_lines(&text, OUTPUT_LINES_MAX),
    })
}

fn random() -> io::Result<[u8; PASSWORD_BYTES]> {
    let mut bytes = [0; PASSWORD_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), PrivatePostgresError> {
    let new = path.with_extension("new");
    let write = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        // The umask may have taken bits from the mode.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(PrivatePostgresError::io("write", path))
}
