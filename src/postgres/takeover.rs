//! Orphaned server of an earlier callgate, found through `postmaster.pid`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::account::Account;
use super::binaries::Binaries;
use super::error::PrivatePostgresError;
use super::layout::Layout;
use super::process::{self, TOOL_MAX};

/// Shutdown modes of an orphan with their timeouts, in seconds.
const STOP_MODES: [(&str, u64); 2] = [("fast", 60), ("immediate", 15)];

/// The line of `postmaster.pid` that names the socket's directory, counted from 0.
const SOCKET_DIR_LINE: usize = 4;

/// The line with the server's status.
const STATUS_LINE: usize = 7;

/// A server that just starts creates its pid file empty and fills it at once.
const EMPTY_FILE_GRACE: Duration = Duration::from_millis(200);

/// Holder of the pid in `postmaster.pid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occupant {
    /// No process, or an unidentifiable one.
    Unclaimed,
    /// A process that is certainly not this cluster's postmaster.
    Stranger(u32),
    /// This cluster's postmaster.
    Postmaster(u32),
}

/// Stops a server that still runs on the cluster.
///
/// Returns the pid of a stranger that PostgreSQL would mistake for such a server, to be disregarded.
pub(super) async fn stop_orphan(
    layout: &Layout,
    binaries: &Binaries,
    account: Option<&Account>,
) -> Result<Option<u32>, PrivatePostgresError> {
    let mut occupant = occupant_of(&layout.pgdata).await?;
    for (mode, seconds) in STOP_MODES {
        let Occupant::Postmaster(pid) = occupant else { break };
        tracing::warn!(pid, mode, data_dir = %layout.root.display(), "stopping a PostgreSQL that was left behind");
        let program = binaries.program("pg_ctl");
        let mut command = process::command(&program, account);
        command.arg("stop").arg("-D").arg(&layout.pgdata);
        command.args(["-m", mode, "-t", &seconds.to_string(), "-w"]);
        // Its exit code does not matter: the server may have ended by itself, so check again.
        let limit = Duration::from_secs(seconds) + TOOL_MAX;
        process::output(command, limit).await.map_err(PrivatePostgresError::io("run", &program))?;
        occupant = occupant_of(&layout.pgdata).await?;
    }
    match occupant {
        Occupant::Unclaimed => Ok(None),
        Occupant::Stranger(pid) => {
            let data_dir = layout.root.display();
            tracing::warn!(pid, %data_dir, "postmaster.pid is stale: another process has its pid now");
            Ok(Some(pid))
        }
        Occupant::Postmaster(pid) => Err(PrivatePostgresError::OrphanStays { data_dir: layout.root.clone(), pid }),
    }
}

/// The directory of the socket and that of the programs of a server that runs on the cluster; none when none does.
pub(super) async fn running(pgdata: &Path) -> Result<Option<(PathBuf, PathBuf)>, PrivatePostgresError> {
    let Occupant::Postmaster(_) = occupant_of(pgdata).await? else { return Ok(None) };
    let read = |name: &str| {
        let path = pgdata.join(name);
        fs::read_to_string(&path).map_err(PrivatePostgresError::io("read", path))
    };
    let (pid_file, command_line) = (read("postmaster.pid")?, read("postmaster.opts")?);
    let socket_dir = pid_file.lines().nth(SOCKET_DIR_LINE).map(PathBuf::from);
    let program = command_line.split(" \"").next().map(Path::new);
    Ok(socket_dir.zip(program.and_then(Path::parent).map(Path::to_owned)))
}

/// True when the server of that pid has written that it accepts connections.
pub(super) fn is_ready(pgdata: &Path, pid: u32) -> bool {
    let text = fs::read_to_string(pgdata.join("postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first().is_some_and(|first| *first == pid.to_string()) && lines.get(STATUS_LINE) == Some(&"ready")
}

async fn occupant_of(pgdata: &Path) -> Result<Occupant, PrivatePostgresError> {
    let path = pgdata.join("postmaster.pid");
    for last in [false, true] {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Unclaimed),
            Err(error) => return Err(PrivatePostgresError::io("read", path)(error)),
        };
        if let Some(pid) = text.lines().next().and_then(|line| line.trim().parse::<i32>().ok()) {
            // A single-user server writes its pid with a minus sign.
            let pid = pid.unsigned_abs();
            return Ok(identify(pid, pgdata).await);
        }
        if !last {
            tokio::time::sleep(EMPTY_FILE_GRACE).await;
        }
    }
    // A machine that crashed can leave the file without its content, and PostgreSQL would refuse to start.
    tracing::warn!(path = %path.display(), "removing a pid file that names no process");
    fs::remove_file(&path).map_err(PrivatePostgresError::io("remove", &path))?;
    Ok(Occupant::Unclaimed)
}

async fn identify(pid: u32, pgdata: &Path) -> Occupant {
    if Path::new("/proc/self/cmdline").exists() {
        identify_by_proc(pid, pgdata)
    } else {
        identify_by_ps(pid, pgdata).await
    }
}

fn identify_by_proc(pid: u32, pgdata: &Path) -> Occupant {
    let Ok(command_line) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return Occupant::Unclaimed;
    };
    let text = String::from_utf8_lossy(&command_line);
    let arguments: Vec<&str> = text.trim_end_matches('\0').split('\0').collect();
    // A zombie has an empty line: the pid is taken without a process.
    if !is_postmaster(arguments[0]) {
        return Occupant::Stranger(pid);
    }
    let given = data_dir_argument(&arguments).and_then(|dir| same_dir(Path::new(dir), pgdata));
    // A postmaster's directory is its cluster, if privileges allow reading it.
    let working = same_dir(Path::new(&format!("/proc/{pid}/cwd")), pgdata);
    match (working, given) {
        (Some(true), _) | (_, Some(true)) => Occupant::Postmaster(pid),
        (None, None) => Occupant::Unclaimed,
        _ => Occupant::Stranger(pid),
    }
}

/// Where there is no /proc (macOS).
async fn identify_by_ps(pid: u32, pgdata: &Path) -> Occupant {
    let mut command = process::command("ps", None);
    command.args(["-ww", "-p", &pid.to_string(), "-o", "args="]);
    let Ok(output) = process::output(command, TOOL_MAX).await else {
        return Occupant::Unclaimed;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.trim();
    if line.is_empty() {
        return Occupant::Unclaimed;
    }
    if !is_postmaster(line.split(" -").next().unwrap_or(line)) {
        return Occupant::Stranger(pid);
    }
    if line.contains(&*pgdata.to_string_lossy()) { Occupant::Postmaster(pid) } else { Occupant::Unclaimed }
}

/// True for `/any/where/postgres`; the server's children call themselves `postgres: ...`.
fn is_postmaster(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("postgres" | "postmaster"))
}

fn data_dir_argument<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument.starts_with("-D"))?;
    match arguments[at] {
        "-D" => arguments.get(at + 1).copied(),
        joined => joined.strip_prefix("-D"),
    }
}

/// `None` when one of them is unreadable.
fn same_dir(a: &Path, b: &Path) -> Option<bool> {
    let (a, b) = (fs::metadata(a).ok()?, fs::metadata(b).ok()?);
    Some((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_postmaster_is_told_from_its_children_and_from_others() {
        assert!(is_postmaster("/usr/lib/postgresql/15/bin/postgres"));
        assert!(is_postmaster("postmaster"));
        assert!(!is_postmaster("postgres: checkpointer "));
        assert!(!is_postmaster("/usr/bin/sleep"));
        assert!(!is_postmaster(""));
    }

    #[test]
    fn the_data_directory_is_read_in_both_spellings() {
        assert_eq!(data_dir_argument(&["postgres", "-c", "x=y", "-D", "/a"]), Some("/a"));
        assert_eq!(data_dir_argument(&["postgres", "-D/a"]), Some("/a"));
        assert_eq!(data_dir_argument(&["postgres", "-D"]), None);
        assert_eq!(data_dir_argument(&["postgres"]), None);
    }

    #[tokio::test]
    async fn a_file_without_a_pid_is_removed_and_a_strangers_pid_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("postmaster.pid");
        assert_eq!(occupant_of(dir.path()).await.unwrap(), Occupant::Unclaimed);
        fs::write(&file, "").unwrap();
        assert_eq!(occupant_of(dir.path()).await.unwrap(), Occupant::Unclaimed);
        assert!(!file.exists());
        let own = std::process::id();
        fs::write(&file, format!("{own}\n/somewhere\n")).unwrap();
        assert_eq!(occupant_of(dir.path()).await.unwrap(), Occupant::Stranger(own));
        assert!(file.exists(), "PostgreSQL still needs its shared memory key");
    }
}
