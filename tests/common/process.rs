//! Processes by id: only those started by tests are ever signaled.

use std::process::{Command, Stdio};

/// Sends a signal; false when there is no such process.
pub(crate) fn signal(pid: u32, name: &str) -> bool {
    let command = format!("kill -{name} {pid}");
    let status = Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status();
    status.expect("a shell").success()
}

/// True while the process runs; a zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let state = run_command("ps", &["-p", &pid.to_string(), "-o", "stat="]);
    !state.is_empty() && !state.starts_with('Z')
}

/// The processes that `pid` has started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    run_command("pgrep", &["-P", &pid.to_string()]).lines().filter_map(|line| line.trim().parse().ok()).collect()
}

fn run_command(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect(program);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
