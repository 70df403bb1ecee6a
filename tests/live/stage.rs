//! Work folder of an agent, and real execution of its actions.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{common::postgres::folder, script::Action};

/// Fake programs: each prints a file of the folder `world`, by its arguments.
const PROGRAMS: [&str; 6] = ["docker", "kubectl", "gh", "systemctl", "aws", "psql"];
const PROGRAM: &str = "#!/bin/sh\nfile=\"$STAGE/world/$(basename \"$0\")-$(echo \"$*\" | tr -c 'a-zA-Z0-9\\n' '-')\"\n\
    if [ -f \"$file\" ]; then cat \"$file\"; else echo \"$(basename \"$0\"): nothing known of: $*\" >&2; exit 1; fi\n";

/// Result of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionResult {
    pub(crate) text: String,
    /// 0 for a success.
    pub(crate) code: i32,
}

pub(crate) struct Stage(TempDir);

impl Stage {
    /// A repository with a remote and a colleague's clone.
    pub(crate) fn open() -> Self {
        let stage = Self(folder());
        for name in ["bin", "world", "web"] {
            fs::create_dir(stage.path(name)).expect("a folder");
        }
        for name in PROGRAMS {
            let path = stage.path("bin").join(name);
            fs::write(&path, PROGRAM).expect("writable");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a program");
        }
        let git = "git init -q --bare -b main remote.git && git clone -q remote.git repo 2>/dev/null && cd repo &&
            git checkout -q -b main 2>/dev/null; mkdir -p src tests docs &&
            printf 'def add(a, b):\\n    return a + b\\n\\n\\ndef sub(a, b):\\n    return a - b\\n' > src/calc.py &&
            printf '%s\\n' 'import sys' 'sys.path.insert(0, \"src\")' 'from calc import add' \
              'assert add(1, 2) == 3' 'print(\"1 passed\")' > tests/test_calc.py &&
            printf '# Calc\\n\\nA small calculator.\\n' > README.md &&
            printf 'name: calc\\nversion: 1\\n' > docs/config.yaml &&
            git add -A && git commit -q -m 'Begin' && git push -q -u origin main && cd .. &&
            git clone -q remote.git colleague";
        let given = stage.shell(git, stage.0.path());
        assert_eq!(given.code, 0, "{}", given.text);
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, path: &str) -> PathBuf {
        self.path("repo").join(path)
    }

    pub(crate) fn run_in(&self, folder: &str, line: &str) {
        let given = self.shell(line, &self.path(folder));
        assert_eq!(given.code, 0, "{line}: {}", given.text);
    }

    fn shell(&self, line: &str, folder: &Path) -> ActionResult {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(folder).stdin(Stdio::null());
        command.env_clear().env("PATH", path).env("HOME", self.0.path()).env("STAGE", self.0.path()).env("LC_ALL", "C");
        for (role, name) in [("AUTHOR", "dev"), ("COMMITTER", "dev")] {
            command.env(format!("GIT_{role}_NAME"), name).env(format!("GIT_{role}_EMAIL"), "dev@example.com");
        }
        let output = command.output().expect("a shell");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ActionResult { text, code: output.status.code().unwrap_or(-1) }
    }

    /// The tool and its input, as the host names them.
    pub(crate) fn call(&self, action: &Action) -> (&'static str, Value) {
        let file = |path: &str| self.file(path).display().to_string();
        match action {
            Action::Bash(line) => ("Bash", json!({"command": line, "description": "Run a command"})),
            Action::Read(path) => ("Read", json!({"file_path": file(path)})),
            Action::Grep(pattern) => ("Grep", json!({"pattern": pattern, "path": file("")})),
            Action::Glob(pattern) => ("Glob", json!({"pattern": pattern, "path": file("")})),
            Action::Fetch(page) => {
                ("WebFetch", json!({"url": format!("http://localhost/{page}"), "prompt": "What does it say?"}))
            }
            Action::Edit { path, old, new } => {
                ("Edit", json!({"file_path": file(path), "old_string": old, "new_string": new}))
            }
            Action::Write { path, text } => ("Write", json!({"file_path": file(path), "content": text})),
        }
    }

    /// Really does it.
    pub(crate) fn execute(&self, action: &Action) -> ActionResult {
        let given = |result: std::io::Result<String>| match result {
            Ok(text) => ActionResult { text, code: 0 },
            Err(error) => ActionResult { text: error.to_string(), code: 1 },
        };
        match action {
            Action::Bash(line) => self.shell(line, &self.path("repo")),
            Action::Read(path) => given(fs::read_to_string(self.file(path))),
            Action::Grep(pattern) => {
                let found =
                    self.shell(&format!("grep -rn --exclude-dir=.git -e '{pattern}' . | sort"), &self.path("repo"));
                ActionResult {
                    text: if found.text.is_empty() { "No matches found".to_owned() } else { found.text },
                    code: 0,
                }
            }
            Action::Glob(pattern) => {
                let found = self.shell(
                    &format!("find . -path ./.git -prune -o -name '{pattern}' -print | sort"),
                    &self.path("repo"),
                );
                ActionResult {
                    text: if found.text.is_empty() { "No files found".to_owned() } else { found.text },
                    code: 0,
                }
            }
            Action::Fetch(page) => given(fs::read_to_string(self.path("web").join(page))),
            Action::Edit { path, old, new } => {
                let path = self.file(path);
                let text = fs::read_to_string(&path).unwrap_or_default();
                if !text.contains(old.as_str()) {
                    return ActionResult {
                        text: format!("String to replace not found in file.\nString: {old}"),
                        code: 1,
                    };
                }
                let written = fs::write(&path, text.replacen(old.as_str(), new, 1));
                given(written.map(|()| format!("The file {} has been updated.", path.display())))
            }
            Action::Write { path, text } => {
                let path = self.file(path);
                given(fs::write(&path, text).map(|()| format!("File created successfully at: {}", path.display())))
            }
        }
    }
}
