//! `callgate tools`, as a process: lists in, reports and policies out.

mod command;
mod import;
mod lists;
mod sarif;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Output of a command.
struct CommandOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The folder of the lists.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools")
}

/// Runs `callgate tools` in the folder of the lists.
fn tools(words: &[&str]) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callgate"));
    command.arg("tools").args(words).current_dir(folder()).stdin(Stdio::null());
    let output = command.output().expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    CommandOutput { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}
