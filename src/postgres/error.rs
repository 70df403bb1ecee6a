//! Errors of the private PostgreSQL, with advice.

use std::io;
use std::path::{Path, PathBuf};

use super::binaries::{MAJOR_MIN, ServerVersion};

/// A failure to start, run or stop the private PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub enum PrivatePostgresError {
    /// No PostgreSQL was found on this machine.
    #[error(
        "no PostgreSQL {MAJOR_MIN} or newer was found on this machine (looked on PATH, through pg_config and in the \
         usual places). Do one of three things: install it with the system's package manager \
         (`apt-get install postgresql`, `brew install postgresql@17`); or point --pg-bin DIR at the \
         directory that holds `postgres` and `initdb`; or use a server of your own with --database-url \
         (CALLGATE_DATABASE_URL), which a container has to: callgate's image holds no PostgreSQL"
    )]
    NotFound,

    /// `--pg-bin` names a directory without the programs needed.
    #[error(
        "--pg-bin {dir} holds no {missing}: it must be the directory with PostgreSQL's `postgres`, `initdb` and \
         `pg_ctl` (for instance /usr/lib/postgresql/17/bin). Or omit --pg-bin and install PostgreSQL with the \
         system's package manager (`apt-get install postgresql`, `brew install postgresql@17`), or use a server of \
         your own with --database-url"
    )]
    PgBinIncomplete {
        /// The directory given.
        dir: PathBuf,
        /// The programs that are not in it.
        missing: String,
    },

    /// The only PostgreSQL found, or the one given, is too old.
    #[error(
        "PostgreSQL {version} in {dir} is too old: callgate needs {MAJOR_MIN} or newer. Install a newer one, point \
         --pg-bin DIR at one, or use --database-url"
    )]
    TooOld {
        /// Where it was found.
        dir: PathBuf,
        /// Its version.
        version: ServerVersion,
    },

    /// The data was written by another major version than any that is installed.
    #[error(
        "the database in {pgdata} was made by PostgreSQL {cluster_major}, but only {found} is installed: install \
         PostgreSQL {cluster_major} next to it (or name its directory by --pg-bin), and start again; or with both \
         installed move the data: `callgate backup` by the old programs, `callgate restore` by the new ones into \
         another data directory"
    )]
    MajorMismatch {
        /// The cluster's directory.
        pgdata: PathBuf,
        /// The major version that made it.
        cluster_major: u32,
        /// The versions found, with their directories.
        found: String,
    },

    /// The programs that dump and restore are missing.
    #[error(
        "pg_dump and pg_restore of PostgreSQL {major} or newer were found neither next to the server's programs nor on \
         PATH: install its client (`apt-get install postgresql-client`), then try again"
    )]
    NoDumpTools {
        /// The major version of the server.
        major: u32,
    },

    /// A program of PostgreSQL's failed.
    #[error("{program} failed ({status}):\n{said}")]
    Tool {
        /// Its name.
        program: &'static str,
        /// Its exit status.
        status: String,
        /// The last lines it wrote.
        said: String,
    },

    /// A server runs on the data directory.
    #[error("a server runs in {data_dir}: stop `callgate serve` first")]
    Runs {
        /// The data directory.
        data_dir: PathBuf,
    },

    /// `postgres --version` did not answer with a version.
    #[error("{program} --version did not answer with a PostgreSQL version: {answer}")]
    VersionUnreadable {
        /// The program.
        program: PathBuf,
        /// Its output.
        answer: String,
    },

    /// No home directory, hence no default place for the data.
    #[error(
        "no home directory is known (HOME is not set): set the data directory with --data-dir DIR, or use a \
         server of your own with --database-url (CALLGATE_DATABASE_URL)"
    )]
    NoDataHome,

    /// Another callgate holds the directory.
    #[error(
        "the data directory {data_dir} is in use by another callgate ({holder}): stop it, or give this one its own \
         --data-dir"
    )]
    Locked {
        /// The directory.
        data_dir: PathBuf,
        /// `pid N`, as that process wrote it, or that it is not known.
        holder: String,
    },

    /// As root: the account the database runs as cannot get to a directory.
    #[error(
        "callgate runs as root, so its database runs as user `{account}`, which cannot pass through {dir}: run \
         `chmod o+x {dir}`, or choose another {flag}"
    )]
    Blocked {
        /// The account.
        account: String,
        /// The first directory on the way that blocks it.
        dir: PathBuf,
        /// The flag that chooses another path.
        flag: &'static str,
    },

    /// A file or directory that callgate must own is another user's.
    #[error(
        "{path} belongs to another user (uid {owner}), who could keep callgate from starting: make it callgate's own \
         (`chown`), or choose another --data-dir"
    )]
    OtherOwner {
        /// The path.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },

    /// No server runs on the data directory.
    #[error(
        "no private PostgreSQL runs in {data_dir}: start `callgate serve` without --database-url, or name the data \
         directory of one that runs with --data-dir DIR"
    )]
    NotRunning {
        /// The data directory.
        data_dir: PathBuf,
    },

    /// As root: there is no account to drop to.
    #[error(
        "callgate runs as root, and PostgreSQL refuses to: there is no user `callgate`, `postgres` or `nobody` to run \
         it as, and none could be created. Create one (`useradd --system callgate`), or start callgate as an ordinary \
         user"
    )]
    NoAccount,

    /// Files that are not callgate's are in the place of the cluster.
    #[error("{path} {what}: callgate will not touch it; move it away or choose another --data-dir")]
    ForeignData {
        /// The path in the way.
        path: PathBuf,
        /// The problem.
        what: &'static str,
    },

    /// The cluster could not be created.
    #[error("initdb could not create the database in {data_dir} ({status}):\n{output}")]
    Initdb {
        /// The data directory.
        data_dir: PathBuf,
        /// Exit status of initdb.
        status: String,
        /// The last lines it wrote.
        output: String,
    },

    /// The server stopped instead of becoming ready.
    #[error("PostgreSQL in {data_dir} did not start ({status}); the end of {log}:\n{tail}")]
    StartFailed {
        /// The data directory.
        data_dir: PathBuf,
        /// Exit status of the process.
        status: String,
        /// The server's log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },

    /// The server runs, yet accepts no connection.
    #[error("PostgreSQL in {data_dir} accepted no connection within {seconds} s; the end of {log}:\n{tail}")]
    StartTimedOut {
        /// The data directory.
        data_dir: PathBuf,
        /// Waiting time, in seconds.
        seconds: u64,
        /// The server's log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },

    /// A server left behind by an earlier callgate does not stop.
    #[error(
        "a PostgreSQL left behind by an earlier callgate still runs on {data_dir} (pid {pid}) and does not stop: \
         stop it by hand (`kill -QUIT {pid}`), then start again"
    )]
    OrphanStays {
        /// The data directory.
        data_dir: PathBuf,
        /// The postmaster's process id.
        pid: u32,
    },

    /// Our own server does not stop.
    #[error(
        "PostgreSQL in {data_dir} (pid {pid}) did not stop: a fast shutdown, an immediate one and SIGKILL were tried"
    )]
    StopTimedOut {
        /// The data directory.
        data_dir: PathBuf,
        /// The postmaster's process id.
        pid: u32,
    },

    /// The server keeps crashing; it was not started again.
    #[error("PostgreSQL in {data_dir} failed {failures} times within a short time and is not started again: {reason}")]
    GaveUp {
        /// The data directory.
        data_dir: PathBuf,
        /// Ends and failed starts since its last calm period.
        failures: u32,
        /// The last failure.
        reason: String,
    },

    /// The task that watches the server panicked.
    #[error("the task that watches PostgreSQL failed: {0}")]
    Supervisor(String),

    /// A file or process could not be handled.
    #[error("could not {action} {path}: {error}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's answer; not a source, since the text has it already.
        error: io::Error,
    },
}

impl PrivatePostgresError {
    /// True when this user lacks permission for files of another user's callgate.
    #[must_use]
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// True when the server ended because the disk is full.
    pub(super) fn is_disk_full(&self) -> bool {
        matches!(self, Self::StartFailed { tail, .. } if says_disk_full(tail))
    }

    /// True when the server was killed, or crashed, instead of refusing to start.
    pub(super) fn is_crash(&self) -> bool {
        let Self::StartFailed { status, tail, .. } = self else { return false };
        status.starts_with("signal") || tail.contains("was terminated by signal")
    }

    /// For `map_err`: names the action and the path an I/O error is about.
    pub(super) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |error| Self::Io { action, path, error }
    }
}

/// True when the server's log shows a full disk as its end. A query alone may fail for that, too.
pub(super) fn says_disk_full(log: &str) -> bool {
    let is_last_word = |line: &&str| line.contains("PANIC:") || line.contains("FATAL:");
    log.lines().filter(is_last_word).any(|line| line.contains("No space left on device"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_for_want_of_space_counts_as_a_full_disk() {
        let wal = "PANIC:  could not write to file \"pg_wal/xlogtemp.29\": No space left on device";
        assert!(says_disk_full(&format!("LOG:  starting\n2026-01-01 00:00:00.000 UTC [29] {wal}\n")));
        assert!(!says_disk_full("ERROR:  could not extend file \"base/1/2\": No space left on device\n"));
        assert!(!says_disk_full("FATAL:  could not open file \"global/pg_control\"\n"));
    }
}
