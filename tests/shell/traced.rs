//! System calls of reads: they write nothing, connect to nothing, and run no program that their row does not name.
//! Lines run in a folder and a home of their own, without a network where possible.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;
use tempfile::TempDir;

/// Programs that others run for a part of their work, in Debian.
const HELPERS: &[(&str, &[&str])] = &[
    ("zcat", &["gzip"]),
    ("bzcat", &["bzip2"]),
    ("zgrep", &["gzip", "grep", "sed", "expr", "env"]),
    // A login shell reads a profile.
    ("bash", &["id"]),
    ("apt", &["dpkg"]),
    ("tar", &["gzip", "bzip2", "xz", "zstd"]),
    ("unzip", &["zipinfo"]),
    ("dpkg", &["dpkg-query"]),
    ("egrep", &["grep"]),
    ("fgrep", &["grep"]),
    ("which", &["which.debianutils", "dash", "sh"]),
];
/// Programs started by this test, and those that line parts in `such` stand for.
const OWN: &[&str] = &["bash", "sh", "timeout", "cat", "ls", "grep", "wc"];
/// Where a program of the machine's asks who a user is.
const NAME_SERVICES: &[&str] = &["nscd/socket", "/run/systemd/userdb", "/run/dbus"];
/// Files that may be opened for writing: nothing is kept. `git` refreshes its index, which is no change for others.
const KEEPS_NOTHING: &[&str] = &["/dev/null", "/dev/tty", ".git/index.lock"];
/// The system's programs, without version managers' shims in front.
const PATH: &str = "/usr/bin:/bin";
const OPENS: &[&str] = &["open", "openat", "openat2", "creat"];
const CHANGES: &[&str] = &[
    "mkdir",
    "mkdirat",
    "rmdir",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "truncate",
    "chmod",
    "fchmod",
    "fchmodat",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "utime",
    "utimes",
    "utimensat",
    "mknod",
    "mknodat",
    "setxattr",
];

#[derive(Deserialize)]
struct Rows {
    commands: Vec<TracedRow>,
}

#[derive(Deserialize)]
struct TracedRow {
    command: String,
    does: String,
    #[serde(default)]
    flags: String,
    #[serde(default)]
    then: String,
    such: Vec<String>,
}

impl TracedRow {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.command.split_ascii_whitespace()
    }

    /// Programs that its lines may run.
    fn runs(&self) -> BTreeSet<&str> {
        let helpers = self.names().filter_map(|name| HELPERS.iter().find(|(of, _)| *of == name));
        let helpers = helpers.flat_map(|(_, helpers)| helpers.iter().copied());
        self.names().chain(helpers).chain(OWN.iter().copied()).collect()
    }
}

fn rows() -> Vec<TracedRow> {
    let table = fs::read_to_string("src/core/shell/commands.yaml").expect("the table");
    let rows: Rows = serde_saphyr::from_str(&table).expect("the table");
    rows.commands.into_iter().filter(|row| row.does == "read").collect()
}

fn is_here(program: &str) -> bool {
    PATH.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// Each flag that a program's own help names, alone and with a value that would be a new file.
fn lines_of_flags(program: &str) -> Vec<String> {
    let help = Command::new(program).arg("--help").env("PATH", PATH).stdin(Stdio::null()).output().expect("it is here");
    let help = [help.stdout, help.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let is_end = |c: char| c.is_whitespace() || ",=[]|<>().;:'\"`".contains(c);
    let flags: BTreeSet<&str> = help.split(is_end).filter(|word| word.len() > 1 && word.starts_with('-')).collect();
    let is_flag = |flag: &&&str| flag.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && **flag != "--";
    let with_value = |flag: &str| if flag.starts_with("--") { format!("{flag}=new") } else { format!("{flag} new") };
    let line = |flag: &str| format!("timeout 1 {program} {flag} a.txt; timeout 1 {program} {} a.txt", with_value(flag));
    flags.iter().filter(is_flag).map(|flag| line(flag)).collect()
}

/// System calls of these lines that no read makes.
fn violations(folder: &Path, lines: &[String], runs: &BTreeSet<&str>) -> Vec<String> {
    let log = folder.with_extension("log");
    // Each line in a shell of its own, so that `exit` and `set -e` end no other.
    let script: String = lines.iter().map(|line| format!("({line}\n)\n")).collect();
    let tracer = ["strace", "-f", "-qq", "-s", "200", "-e", "trace=process,network,file,fchmod,fchown,ftruncate", "-o"];
    let namespace = ["unshare", "--map-root-user", "--net"];
    let words: Vec<&str> = if has_namespaces() { [&namespace[..], &tracer].concat() } else { tracer.to_vec() };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(&log);
    command.args(["bash", "-c", &script]).current_dir(folder).env_clear();
    command.env("PATH", PATH).env("HOME", folder).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().expect("strace runs");
    let text = String::from_utf8_lossy(&fs::read(&log).expect("a log")).into_owned();
    fs::remove_file(&log).expect("the log");
    text.lines().filter(|line| is_violation(line, runs)).take(3).map(str::to_owned).collect()
}

fn has_namespaces() -> bool {
    let status = Command::new("unshare").args(["--map-root-user", "--net", "true"]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A line of the log: the process, the call and its result.
fn is_violation(line: &str, runs: &BTreeSet<&str>) -> bool {
    let Some((call, arguments)) = line.split_once('(') else { return false };
    let call = call.rsplit(' ').next().unwrap_or_default();
    let path = arguments.split('"').nth(1).unwrap_or_default();
    let failed = line.contains(" = -1 ");
    let holds = |texts: &[&str]| texts.iter().any(|text| line.contains(text));
    match call {
        "execve" | "execveat" => !failed && !path.rsplit('/').next().is_some_and(|name| is_run(name, runs)),
        "connect" | "sendto" | "sendmsg" => {
            line.contains("AF_INET") || line.contains("AF_UNIX") && !holds(NAME_SERVICES)
        }
        _ if OPENS.contains(&call) => {
            let writes = call == "creat" || holds(&["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"]);
            // A file without a name ends with its process.
            writes && !line.contains("O_TMPFILE") && !KEEPS_NOTHING.iter().any(|kept| path.ends_with(kept))
        }
        "ftruncate" => true,
        _ => CHANGES.contains(&call) && !holds(KEEPS_NOTHING),
    }
}

/// A program goes by several names where those of the row are links to it.
fn is_run(name: &str, runs: &BTreeSet<&str>) -> bool {
    let begin = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    runs.contains(name) || runs.contains(begin)
}

/// A folder for tracing; none where tracing is unavailable. CI's machine supports it; elsewhere the test prints what is
/// missing.
#[expect(clippy::print_stderr, reason = "a test says that it is skipped")]
fn traceable() -> Option<(TempDir, PathBuf)> {
    let can = Command::new("strace").args(["-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    let can = can.is_ok_and(|status| status.success());
    assert!(can || std::env::var_os("CI").is_none(), "strace is missing or may not trace: the gate installs it");
    if !can {
        eprintln!("skipped: strace is missing, or may not trace");
        return None;
    }
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("w");
    fs::create_dir(&folder).expect("a folder");
    super::fill(&folder);
    Some((home, folder))
}

#[test]
fn lines_of_reads_write_connect_and_run_nothing() {
    let Some((_home, folder)) = traceable() else { return };
    let (mut traced, mut wrong) = (0, Vec::new());
    // Commands that run others are judged by those; shell built-ins run nothing.
    for row in rows().iter().filter(|row| !row.names().any(|name| name == "sudo")) {
        if !row.names().any(is_here) {
            continue;
        }
        let lines: Vec<String> =
            row.such.iter().filter(|line| line.split(' ').next().is_some_and(is_here)).cloned().collect();
        traced += lines.len();
        let runs = row.runs();
        let found = violations(&folder, &lines, &runs);
        wrong.extend(found.into_iter().map(|found| format!("{}: {found}", row.command)));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(traced > 100, "{traced} lines were traced");
}

#[test]
fn no_flag_of_a_program_whose_flags_are_all_harmless_does_more() {
    let Some((_home, folder)) = traceable() else { return };
    let (mut traced, mut wrong) = (0, Vec::new());
    for row in rows().iter().filter(|row| row.flags == "any" && row.then.is_empty()) {
        for program in row.names().filter(|name| is_here(name)) {
            let lines = lines_of_flags(program);
            traced += lines.len();
            wrong.extend(
                violations(&folder, &lines, &row.runs()).into_iter().map(|found| format!("{program}: {found}")),
            );
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(traced > 1_000, "{traced} lines were traced");
}

#[test]
fn a_program_that_does_more_is_seen() {
    let Some((_home, folder)) = traceable() else { return };
    let runs = BTreeSet::from(["bash", "touch", "cat", "sort"]);
    for line in ["touch new", "cat a.txt > new", "id", "sort -o new a.txt", "cat < /dev/tcp/127.0.0.1/9"] {
        assert!(!violations(&folder, &[line.to_owned()], &runs).is_empty(), "{line}");
    }
    assert_eq!(violations(&folder, &["cat a.txt".to_owned()], &runs), Vec::<String>::new());
}
