//! `callgate agents` as a process: its own home folder, the files in it, and a script as hook.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    common::postgres::folder,
    server::{Home, Server, program},
};

/// A home folder with a scripted hook.
struct Person {
    home: TempDir,
}

/// Where no server listens.
const NOWHERE: &str = "http://127.0.0.1:1";
const SECRET: &str = "s3cret-of-the-test";

impl Person {
    fn new(hook: &str) -> Self {
        let person = Self { home: folder() };
        person.script("callgate", hook);
        fs::create_dir(person.path("work")).expect("a folder");
        person
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A program on this person's path.
    fn script(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::create_dir_all(self.path("bin")).expect("a folder");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("writable");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its owner");
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("writable");
        path
    }

    /// Combined output of the command, and success.
    fn says(&self, line: &str) -> (bool, String) {
        self.says_to(NOWHERE, SECRET, &format!("agents {line}"))
    }

    fn says_to(&self, server: &str, token: &str, line: &str) -> (bool, String) {
        let mut command = program();
        for name in ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_STATE_HOME", "CALLGATE_TOKEN_FILE"] {
            command.env_remove(name);
        }
        command.args(line.split_whitespace()).current_dir(self.path("work"));
        command.env("HOME", self.home.path()).env("CALLGATE_SERVER", server).env("CALLGATE_TOKEN", token);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        let output = command.output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).expect("UTF-8"))
    }

    fn install(&self, line: &str) -> (bool, String) {
        self.says(&format!("install --command {} {line}", self.path("bin/callgate").display()))
    }

    /// Every file below a folder of the home.
    fn files(&self, below: &str) -> Vec<PathBuf> {
        let mut folders = vec![self.path(below)];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.path().is_dir() { folders.push(entry.path()) } else { files.push(entry.path()) }
            }
        }
        files
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("readable")
}

#[test]
fn a_file_comes_back_to_the_byte_with_its_link_and_its_permissions() {
    let person = Person::new("exit 0");
    let text = "{\"model\": \"opus\",   \"hooks\": {\"Stop\": []}}";
    let real = person.write("dotfiles/claude.json", text);
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("its owner");
    // An administrator installs for another user; only root may change a file's owner.
    let owner =
        [4711, fs::metadata(&real).expect("a file").uid()].into_iter().find(|id| chown(&real, Some(*id), None).is_ok());
    fs::create_dir(person.path(".claude")).expect("a folder");
    let link = person.path(".claude/settings.json");
    symlink(&real, &link).expect("a link");

    let (went, said) = person.install("claude-code --dry-run");
    assert!(went && said.contains("+") && said.contains("PreToolUse") && said.contains("(--dry-run)"), "{said}");
    assert_eq!((read(&real).as_str(), person.files(".local").len()), (text, 0));

    let (went, said) = person.install("claude-code --no-test");
    assert!(went && said.contains(&format!("--- {}", link.display())) && said.contains("-{\"model\""), "{said}");
    let installed = read(&real);
    assert!(installed.contains("onFailure") && installed.contains("bin/callgate"), "{installed}");
    assert!(link.is_symlink(), "the link is gone");
    let now = fs::metadata(&real).expect("a file");
    assert_eq!((now.mode() & 0o777, Some(now.uid())), (0o640, owner));
    // Originals may hold secrets.
    let memories = person.files(".local");
    assert_eq!(memories.len(), 1);
    assert_eq!(fs::metadata(&memories[0]).expect("a file").mode() & 0o777, 0o600);

    let (went, said) = person.install("claude-code --no-test");
    assert!(went && said.contains("all hooks are installed") && !said.contains("written"), "{said}");
    assert_eq!(read(&real), installed);
    let (went, said) = person.says("list");
    let expected =
        format!("user     {}: callgate's hooks, runs {}", link.display(), person.path("bin/callgate").display());
    assert!(went && said.contains(&expected) && said.contains("no server answers at"), "{said}");

    let (went, said) = person.says("uninstall claude-code --dry-run");
    assert!(went && said.contains("-    \"PreToolUse\"") && read(&real) == installed, "{said}");
    assert!(person.says("uninstall").0);
    assert!(link.is_symlink(), "the link is gone");
    assert_eq!((read(&real).as_str(), person.files(".local").len()), (text, 0));
    let now = fs::metadata(&real).expect("a file");
    assert_eq!((now.mode() & 0o777, Some(now.uid())), (0o640, owner));
}

#[test]
fn a_file_of_callgates_own_goes_with_its_folder() {
    let person = Person::new("exit 0");
    for (host, file) in [("codex", ".codex/hooks.json"), ("cursor", ".cursor/hooks.json")] {
        for (scope, path) in [("--user", person.path(file)), ("--project", person.path("work").join(file))] {
            assert!(person.install(&format!("{host} {scope} --no-test")).0);
            assert!(read(&path).contains(&format!(" hook {host} ")), "{}", path.display());
            assert!(person.says(&format!("uninstall {host} {scope}")).0);
            assert!(!path.parent().expect("a folder").exists(), "{} is left", path.display());
        }
    }
    // Later additions of others are kept.
    assert!(person.install("gemini --no-test").0);
    person.write(".gemini/oauth.json", "{}");
    assert!(person.says("uninstall gemini").0);
    assert_eq!(person.files(".gemini"), [person.path(".gemini/oauth.json")]);
}

#[test]
fn a_file_that_cannot_be_read_is_left_alone() {
    let person = Person::new("exit 0");
    let text = "{\n  \"a\": 1, // mine\n}\n";
    let path = person.write(".claude/settings.json", text);
    for line in ["install claude-code", "uninstall claude-code"] {
        let (went, said) = person.says(line);
        assert!(
            !went && said.contains(&format!("{}: ", path.display())) && said.contains("line 2 column 11"),
            "{said}"
        );
    }
    assert_eq!((read(&path).as_str(), person.files(".local").len()), (text, 0));
    fs::remove_file(&path).expect("its owner");
    symlink(person.path("nowhere"), &path).expect("a link");
    let (went, said) = person.install("claude-code --no-test");
    assert!(!went && said.contains("a broken symbolic link"), "{said}");
}

#[test]
fn the_test_of_a_hook_says_what_its_host_would_see() {
    let heard = "cat >> \"$HOME/heard\"; echo >> \"$HOME/heard\"";
    for (hook, expected) in [
        (
            format!("{heard}; exit 0"),
            "settings.json: allowed without a record: no server answers at http://127.0.0.1:1",
        ),
        (
            format!("{heard}; echo 'not now' >&2; exit 2"),
            "refused, because the server is unavailable: no server answers",
        ),
        (format!("{heard}; echo 'oh' >&2; exit 1"), "the hook failed: exit code 1: oh"),
        (format!("{heard}; echo 'all is well'"), "the hook failed: its output is not JSON: all is well"),
    ] {
        let person = Person::new(&hook);
        let (went, said) = person.install("claude-code");
        assert!(!went && said.contains(expected), "{hook}: {said}");
        assert!(said.contains("are installed, but do not work yet"), "{said}");
        let heard = read(&person.path("heard"));
        assert!(heard.contains("\"PreToolUse\"") && heard.contains("callgate-install-test-"), "{heard}");
        for path in [person.files(".claude"), person.files(".local")].concat() {
            assert!(!read(&path).contains(SECRET), "{}", path.display());
        }
        assert!(!said.contains(SECRET), "{said}");
    }
}

#[test]
fn http_hooks_want_a_version_that_blocks_when_they_fail() {
    let person = Person::new("exit 0");
    let install = "install claude-code --http --no-test --server https://plane.example:7600";
    for (version, expected) in [
        ("", "prints no version"),
        ("2.1.197 (Claude Code)", "Claude Code 2.1.197 ignores `onFailure`"),
        ("2.1.250 (Claude Code)", "Claude Code 2.1.250 is untested"),
    ] {
        person.script("claude", &format!("echo '{version}'"));
        let (went, said) = person.says(install);
        assert!(!went && said.contains(expected) && person.files(".claude").is_empty(), "{said}");
    }
    person.script("claude", "echo '2.1.329 (Claude Code)'");
    let (went, said) = person.says(install);
    assert!(went && said.contains("HTTP hooks get no SessionStart"), "{said}");
    let text = read(&person.path(".claude/settings.json"));
    assert!(text.contains("https://plane.example:7600/hooks/claude-code") && text.contains("Bearer $CALLGATE_TOKEN"));
    assert!(!text.contains(SECRET) && !text.contains("SessionStart"), "{text}");
    person.script("other", "exit 0");
    let (went, said) = person.says(&format!("install codex --command {}", person.path("bin/other").display()));
    assert!(!went && said.contains("the program must be named callgate"), "{said}");
    let (went, said) = person.says("install codex --http");
    assert!(!went && said.contains("Codex has no HTTP hooks"), "{said}");
    person.script("claude", "echo '2.1.197 (Claude Code)'");
    assert!(person.says(&format!("{install} --any-version")).0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hooks_that_are_installed_are_those_that_the_server_hears() {
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &[]);
    let url = format!("http://{}", server.address);
    let person = Person::new("exit 0");
    person.script("claude", "echo '2.1.329 (Claude Code)'");
    let says = |line: &str| person.says_to(&url, "", line);
    for host in ["claude-code", "codex", "gemini", "cursor", "claude-code --project --http"] {
        let (went, said) = says(&format!("agents install {host}"));
        let expected = "allowed, and recorded by the server as session callgate-install-test-";
        assert!(went && said.contains(expected), "{host}: {said}");
    }
    let text = read(&person.path("work/.claude/settings.json"));
    assert!(text.contains(&format!("{url}/hooks/claude-code")) && !text.contains("Authorization"), "{text}");

    assert!(says("sessions halt all --reason maintenance").0);
    for host in ["claude-code", "gemini", "claude-code --project --http"] {
        let (went, said) = says(&format!("agents install {host}"));
        let told = said.lines().find(|line| line.starts_with("test: ")).unwrap_or(&said);
        assert!(!went && told.contains(": refused: ") && told.contains("maintenance"), "{host}: {told}");
    }
}
