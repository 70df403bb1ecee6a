//! Atomic creation of the database cluster.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use super::account::Account;
use super::binaries::Binaries;
use super::error::PrivatePostgresError;
use super::layout::{self, Layout};
use super::process::{self, last_lines};

/// The superuser of the cluster, and the name of its database.
pub(super) const NAME: &str = "callgate";

/// A cluster under construction is called this and random letters; one that is found later was never finished.
const UNFINISHED_PREFIX: &str = "pg.init-";

const INITDB_MAX: Duration = Duration::from_secs(300);

const OUTPUT_LINES_MAX: usize = 20;

/// Appended to `postgresql.conf` once. Settings for the safety of data are on the command line instead.
const TUNING: &str = "
# Written once by callgate, for a small server that is always on. Yours to change: callgate does not write it again.
max_connections = 64
shared_buffers = 128MB
wal_compression = on
autovacuum = on
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
";

/// The major version that made the cluster; `None` when there is none yet.
pub(super) fn major_of(pgdata: &Path) -> Result<Option<u32>, PrivatePostgresError> {
    let path = pgdata.join("PG_VERSION");
    match fs::read_to_string(&path) {
        Ok(text) => {
            let major = text.trim().parse();
            major.map(Some).map_err(|_| PrivatePostgresError::ForeignData { path, what: "is not a PostgreSQL version" })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PrivatePostgresError::io("read", path)(error)),
    }
}

/// Creates the cluster where there is none, and removes what an interrupted creation left.
///
/// initdb works in a directory beside the final one, which is renamed when complete: a cluster that has its final name
/// is whole.
pub(super) async fn ensure(
    layout: &Layout,
    binaries: &Binaries,
    account: Option<&Account>,
) -> Result<(), PrivatePostgresError> {
    sweep_unfinished(layout).await;
    if major_of(&layout.pgdata)?.is_some() {
        return Ok(());
    }
    if fs::read_dir(&layout.pgdata).is_ok_and(|mut entries| entries.next().is_some()) {
        let what = "is not empty, and not a PostgreSQL cluster either";
        return Err(PrivatePostgresError::ForeignData { path: layout.pgdata.clone(), what });
    }
    tracing::info!(data_dir = %layout.root.display(), version = %binaries.version, "creating the private PostgreSQL");
    let unfinished = layout::private_dir_in(&layout.root, UNFINISHED_PREFIX)
        .map_err(PrivatePostgresError::io("create a directory in", &layout.root))?;
    layout::hand_over(unfinished.path(), account)?;
    initdb(unfinished.path(), layout, binaries, account).await?;
    write_tuning(&unfinished.path().join("postgresql.conf"))?;
    fs::rename(unfinished.path(), &layout.pgdata).map_err(PrivatePostgresError::io("create", &layout.pgdata))?;
    // Renamed: nothing is left to remove under the old name.
    let _ = unfinished.keep();
    sync(&layout.root)
}

async fn initdb(
    pgdata: &Path,
    layout: &Layout,
    binaries: &Binaries,
    account: Option<&Account>,
) -> Result<(), PrivatePostgresError> {
    let program = binaries.program("initdb");
    let mut command = process::command(&program, account);
    command.arg("--pgdata").arg(pgdata).args(["--username", NAME]);
    command.args(["--data-checksums", "--encoding=UTF8", "--locale=C"]);
    // Of no consequence: callgate's own rules hold, see access.rs.
    command.args(["--auth-local=reject", "--auth-host=reject"]);
    let output = process::output(command, INITDB_MAX).await.map_err(PrivatePostgresError::io("run", &program))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(PrivatePostgresError::Initdb {
        data_dir: layout.root.clone(),
        status: output.status.to_string(),
        output: last_lines(&String::from_utf8_lossy(&text), OUTPUT_LINES_MAX),
    })
}

fn write_tuning(conf: &Path) -> Result<(), PrivatePostgresError> {
    let mut file = OpenOptions::new().append(true).open(conf).map_err(PrivatePostgresError::io("open", conf))?;
    file.write_all(TUNING.as_bytes()).and_then(|()| file.sync_all()).map_err(PrivatePostgresError::io("write", conf))
}

pub(super) fn sync(dir: &Path) -> Result<(), PrivatePostgresError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(PrivatePostgresError::io("sync", dir))
}

/// Only a callgate that holds the lock comes here, so no creation is under way.
async fn sweep_unfinished(layout: &Layout) {
    for entry in fs::read_dir(&layout.root).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED_PREFIX)) {
            continue;
        }
        let path = entry.path();
        match tokio::fs::remove_dir_all(&path).await {
            Ok(()) => tracing::warn!(path = %path.display(), "removed a database whose creation was interrupted"),
            // An initdb that outlived its callgate may still write there; it harms nothing, a later start removes it.
            Err(error) => tracing::warn!(path = %path.display(), %error, "could not remove an unfinished database"),
        }
    }
}
