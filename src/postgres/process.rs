//! Execution of database programs: account, environment and timeout.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::account::Account;

/// Timeout of a small program (`postgres --version`, `getent`, `pg_ctl kill`).
pub(super) const TOOL_MAX: Duration = Duration::from_secs(10);

/// Environment variables of the programs. callgate's environment may hold secrets, and as root it is that of another
/// account. The user's `PG*` are meant for other servers, and `NOTIFY_SOCKET` would let PostgreSQL notify systemd in
/// callgate's name. `NSS_WRAPPER_*` name a user to programs in a container that runs under a number only.
const ENVIRONMENT: [&str; 9] = [
    "PATH",
    "HOME",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NSS_WRAPPER_PASSWD",
    "NSS_WRAPPER_GROUP",
];

/// A command in its own process group, from `/`, with little of the caller's environment and none of its locale.
///
/// `account` is the one to drop to, when callgate is root.
pub(super) fn command(program: impl AsRef<Path>, account: Option<&Account>) -> Command {
    // A bare name is searched on PATH; a relative path would be below `/`.
    let program = program.as_ref();
    let is_name = program.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    let found = if is_name { None } else { std::path::absolute(program).ok() };
    let mut command = Command::new(found.as_deref().unwrap_or(program));
    command.env_clear();
    command.envs(ENVIRONMENT.iter().filter_map(|key| std::env::var_os(key).map(|value| (key, value))));
    // Messages are matched in English, and macOS starts a thread inside the postmaster without it.
    command.env("LC_ALL", "C");
    // The caller's own directory may be closed to the account.
    command.current_dir("/");
    // Ctrl-C in a terminal goes to the whole foreground group; callgate decides when its database stops.
    command.process_group(0);
    command.stdin(Stdio::null());
    if let Some(account) = account {
        // As root, std clears the supplementary groups too.
        command.gid(account.gid).uid(account.uid);
    }
    command
}

/// Runs a command and returns its output. After `limit` it is killed and the error is `TimedOut`.
pub(super) async fn output(mut command: Command, limit: Duration) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
    match tokio::time::timeout(limit, child.wait_with_output()).await {
        Ok(output) => output,
        Err(_) => {
            let text = format!("it did not end within {} s", limit.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
    }
}

/// [`output`] with `input` on the command's standard input, which must fit a pipe: it is written at once.
pub(super) async fn output_of(mut command: Command, input: &[u8], limit: Duration) -> io::Result<Output> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(input)?;
    drop(writer);
    command.stdin(reader);
    output(command, limit).await
}

/// The last `lines` lines of a program's output.
pub(super) fn last_lines(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_keeps_the_end() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 5), "a");
        assert_eq!(last_lines("", 5), "");
    }

    #[tokio::test]
    async fn a_program_past_its_limit_is_an_error() {
        let mut sleep = command("sleep", None);
        sleep.arg("30");
        let error = output(sleep, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn the_environment_is_clean_and_the_directory_neutral() {
        let mut shell = command("sh", None);
        shell.args(["-c", "pwd; env"]);
        let output = output(shell, TOOL_MAX).await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("/\n"), "{text}");
        assert!(text.contains("\nLC_ALL=C\n"), "{text}");
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some() && !text.contains("CARGO_MANIFEST_DIR"), "{text}");
    }
}
