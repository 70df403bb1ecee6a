//! Dumps by PostgreSQL's own programs: a database is written to a file, and restored to the same or a newer major
//! version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::access::ConnectionParams;
use super::binaries::{self, ServerVersion};
use super::error::PrivatePostgresError;
use super::process::{self, last_lines};

/// The programs needed.
const PROGRAMS: [&str; 2] = ["pg_dump", "pg_restore"];

/// Longest time for a dump, or for reading one.
const LIMIT: Duration = Duration::from_secs(24 * 3_600);
/// Timeout of a dump for a locked table; only migrations lock one.
const LOCK_WAIT: &str = "--lock-wait-timeout=30s";

const OUTPUT_LINES_MAX: usize = 20;

/// The programs that dump and restore, of one version.
#[derive(Debug, Clone)]
pub struct DumpTools {
    dir: PathBuf,
    /// Their version.
    pub version: ServerVersion,
}

impl DumpTools {
    /// Finds programs of `major` or newer, first in `beside`: older ones refuse to dump such a server.
    ///
    /// # Errors
    ///
    /// [`PrivatePostgresError::NoDumpTools`].
    pub async fn find(beside: &Path, major: u32) -> Result<Self, PrivatePostgresError> {
        let dirs = std::iter::once(beside.to_owned()).chain(binaries::everywhere().await);
        for dir in dirs.filter(|dir| PROGRAMS.iter().all(|program| dir.join(program).is_file())) {
            // Debian has links on PATH to a program that asks which version is meant.
            let dir = fs::canonicalize(dir.join(PROGRAMS[0])).ok().and_then(|program| {
                let dir = program.parent()?.to_owned();
                PROGRAMS.iter().all(|program| dir.join(program).is_file()).then_some(dir)
            });
            let Some(dir) = dir else { continue };
            match binaries::version_of(&dir.join(PROGRAMS[0]), None).await {
                Ok(version) if version.major >= major => return Ok(Self { dir, version }),
                _ => {}
            }
        }
        Err(PrivatePostgresError::NoDumpTools { major })
    }

    /// Writes a consistent snapshot of the database into `file`, without blocking readers or writers.
    ///
    /// # Errors
    ///
    /// [`PrivatePostgresError::Tool`] with the program's output.
    pub async fn dump(&self, connection: &ConnectionParams, file: &Path) -> Result<(), PrivatePostgresError> {
        let mut command = self.command("pg_dump", connection);
        command.args(["--format=custom", LOCK_WAIT, "--file"]).arg(absolute(file)?);
        run("pg_dump", command).await
    }

    /// Restores such a file into an empty database.
    ///
    /// # Errors
    ///
    /// [`PrivatePostgresError::Tool`] with the program's output.
    pub async fn restore(&self, connection: &ConnectionParams, file: &Path) -> Result<(), PrivatePostgresError> {
        let mut command = self.command("pg_restore", connection);
        command.args(["--exit-on-error", "--dbname", connection.database]).arg(absolute(file)?);
        run("pg_restore", command).await
    }

    fn command(&self, program: &str, connection: &ConnectionParams) -> Command {
        let mut command = process::command(self.dir.join(program), None);
        command.envs(connection.environment()).arg("--no-password");
        command
    }
}

/// The absolute path of a file, because the programs run from `/`.
fn absolute(file: &Path) -> Result<PathBuf, PrivatePostgresError> {
    std::path::absolute(file).map_err(PrivatePostgresError::io("find", file))
}

async fn run(program: &'static str, command: Command) -> Result<(), PrivatePostgresError> {
    let path = PathBuf::from(command.get_program());
    let output = process::output(command, LIMIT).await.map_err(PrivatePostgresError::io("run", &path))?;
    if output.status.success() {
        return Ok(());
    }
    let said = last_lines(&String::from_utf8_lossy(&output.stderr), OUTPUT_LINES_MAX);
    Err(PrivatePostgresError::Tool { program, status: output.status.to_string(), said })
}
