//! Random shell lines, executed in a folder of their own if classified as reads: none may change it.
//!
//! `CALLGATE_SHELL_LINES` sets the number, `CALLGATE_SHELL_SEED` the seed.

use std::{
    env, fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use callgate_core::{domain::effect::EffectKind, shell};

mod draw;
#[cfg(target_os = "linux")]
mod traced;

use draw::Draw;

/// Lines per shell between two checks of the folder.
const AT_ONCE: usize = 200;

/// Contents of a folder, without the index that `git status` refreshes.
fn state(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.ends_with(".git/index") {
                continue;
            }
            let kind = fs::symlink_metadata(&entry).expect("it is there").file_type();
            let content = if kind.is_file() { fs::read(&entry).expect("readable") } else { Vec::new() };
            all.push(format!("{} {:?}", entry.display(), String::from_utf8_lossy(&content)));
            open.extend(kind.is_dir().then_some(entry));
        }
    }
    all.sort();
    all
}

fn in_folder(folder: &Path, program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Files whose names and contents do harm if mistaken for flags or scripts.
fn fill(folder: &Path) {
    fs::create_dir_all(folder.join("d")).expect("a folder");
    let files = [
        ("a.txt", "a b\nfoo\nw new\n"),
        ("b.txt", "-o\nnew\n"),
        ("d/c.txt", "c\n"),
        ("x.json", r#"{"a": 1}"#),
        ("a b", "x"),
        ("-i", ""),
        ("-o", ""),
        ("-delete", ""),
        ("-exec", ""),
        ("--output=new", ""),
    ];
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("writable");
    }
    in_folder(folder, "tar", &["-cf", "arc.tar", "a.txt"]);
    in_folder(folder, "git", &["init", "-q", "."]);
    in_folder(folder, "git", &["add", "-A"]);
    in_folder(folder, "git", &["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "x"]);
}

fn restore(clean: &Path, folder: &Path) {
    fs::remove_dir_all(folder).ok();
    let (from, to) = (clean.to_str().expect("UTF-8"), folder.to_str().expect("UTF-8"));
    assert!(in_folder(clean, "cp", &["-a", from, to]), "a copy");
}

/// Runs each line in a shell of its own, for two seconds at most, without input or output.
fn run(folder: &Path, lines: &[String]) {
    let mut shell = Command::new("bash");
    shell.current_dir(folder).env("v", "-o new").env("w", "-delete").env("HOME", "/nonexistent");
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("bash");
    let mut to = shell.stdin.take().expect("piped");
    for (n, line) in lines.iter().enumerate() {
        let text = format!("\"$(cat <<'END_OF_LINE_{n}'\n{line}\nEND_OF_LINE_{n}\n)\"");
        writeln!(to, "timeout 2 bash -c {text} </dev/null >/dev/null 2>&1").expect("it reads");
    }
    drop(to);
    shell.wait().expect("it ends");
}

/// Those of the lines that change the folder, each run alone.
fn harmful<'a>(clean: &Path, folder: &Path, lines: &'a [String]) -> Vec<&'a String> {
    let changes = |line: &&String| {
        restore(clean, folder);
        let before = state(folder);
        run(folder, std::slice::from_ref(*line));
        state(folder) != before
    };
    lines.iter().filter(changes).collect()
}

fn number(name: &str, unless_set: u64) -> u64 {
    env::var(name).map_or(unless_set, |text| text.parse().expect(name))
}

#[test]
fn no_line_that_is_called_a_read_changes_anything() {
    if !in_folder(Path::new("/"), "bash", &["-c", "true"]) {
        return eprintln!("skipped: there is no bash here");
    }
    let folders = tempfile::tempdir().expect("a folder");
    let (clean, folder) = (folders.path().join("clean"), folders.path().join("folder"));
    fill(&clean);
    restore(&clean, &folder);
    let lines = number("CALLGATE_SHELL_LINES", 600);
    let mut draw = Draw::new(number("CALLGATE_SHELL_SEED", 1));
    let before = state(&folder);
    let (mut reads, mut count, mut wrong) = (Vec::new(), 0, Vec::new());
    for n in 1..=lines {
        let line = draw.line();
        if matches!(shell::read(&line, Some("/w")).kind, EffectKind::Read | EffectKind::Poll) {
            reads.push(line);
        }
        if reads.len() == AT_ONCE || n == lines {
            count += reads.len();
            run(&folder, &reads);
            if state(&folder) != before {
                wrong.extend(harmful(&clean, &folder, &reads).into_iter().cloned());
                restore(&clean, &folder);
            }
            reads.clear();
        }
    }
    eprintln!("{lines} lines, {count} of them reads");
    assert!(wrong.is_empty(), "called a read:\n{}", wrong.join("\n"));
    assert!(count as u64 > lines / 10, "{count} reads of {lines} lines say little");
}

#[test]
fn a_line_that_changes_something_is_found() {
    let folders = tempfile::tempdir().expect("a folder");
    let (clean, folder) = (folders.path().join("clean"), folders.path().join("folder"));
    fill(&clean);
    let lines = ["cat a.txt", "sort -o new a.txt", "git log", "git tag x", "rm a.txt", "ls"].map(str::to_owned);
    assert_eq!(harmful(&clean, &folder, &lines), [&lines[1], &lines[3], &lines[4]]);
}
