//! The house keeps its shape: walls between rooms, sizes, nothing unfinished, every rule with its manual. The tables
//! are in `walls.rs`; all violations are listed at once.

mod canaries;
mod dependencies;
mod linear;
mod references;
mod source;
mod walls;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path as FilePath, PathBuf},
};

use linear::{ROWS, check_linear};
use source::{Path, Source};
use walls::{LONG_LINES, OPEN_ROOMS, WALLS, Wall};

const LINES_MAX: usize = 400;
const COLUMNS_MAX: usize = 120;
const LINTS: &str = "src/core/tool_list/lint";
const RULES: &str = "src/core/rules";
/// Crates below `src` whose rooms are folders, as those of the package at the top are.
const CORE: &str = "src/core/";
/// Crates below `src` that are one room each.
const CRATES: [&str; 2] = ["src/bench/", "src/proto/"];
/// What rules share.
const NO_RULES: [&str; 8] = ["mod", "asked", "condition", "context", "evidence", "levels", "rule", "set"];
/// What lints share.
const NO_LINTS: [&str; 5] = ["mod", "facts", "prose", "testing", "tests"];
/// In two parts, so that this file is not reported itself.
const UNFINISHED: &str = concat!("FIX", "ME");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_house_is_tidy() {
    let files = rust_files(&FilePath::new(ROOT).join("src"));
    assert!(files.len() > 30, "only {} files were found below src", files.len());
    let layout = Layout::of(&files);
    let mut violations: Vec<String> = files.iter().flat_map(|(path, text)| check_file(path, text, &layout)).collect();
    let tests = rust_files(&FilePath::new(ROOT).join("tests"));
    violations.extend(tests.iter().flat_map(|(path, text)| check_test(path, text)));
    let ids = callgate_core::rules::RULES.iter().map(|rule| rule.id);
    let lints = callgate_core::tool_list::lint::LINTS.iter().map(|lint| lint.id);
    let manuals = ids.clone().map(|id| (RULES, id, "Fires"));
    violations.extend(manuals.chain(lints.clone().map(|id| (LINTS, id, "Reports"))).flat_map(|(folder, id, first)| {
        let path = format!("{folder}/{id}.rs");
        let text = files.iter().find(|(known, _)| *known == path).map_or("", |(_, text)| text.as_str());
        check_manual(&path, id, first, text)
    }));
    let paths = || files.iter().map(|(path, _)| path.as_str());
    violations.extend(check_registered(LINTS, &NO_LINTS, paths(), &lints.collect()));
    let rules: BTreeSet<&str> = ids.clone().collect();
    violations.extend(check_registered(RULES, &NO_RULES, paths(), &rules));
    violations.extend(files.iter().flat_map(|(path, text)| check_siblings(path, text, &rules)));
    let read = files.iter().filter(|(path, _)| !layout.is_test(path));
    violations.extend(read.flat_map(|(path, text)| check_linear(path, text, ROWS)));
    if let Ok(policy) = fs::read_to_string(FilePath::new(ROOT).join("deploy/policy.example.yaml")) {
        violations
            .extend(check_policy(&policy, callgate_core::rules::RULES.iter().map(|rule| (rule.id, rule.section))));
    }
    assert!(violations.is_empty(), "{} violations\n{}", violations.len(), violations.join("\n"));
}

/// Every `.rs` file below `folder`, by its path from the package's root.
fn rust_files(folder: &FilePath) -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(ROOT).expect("below the root").to_string_lossy().replace('\\', "/");
            files.push((name, fs::read_to_string(&path).expect("UTF-8")));
        }
    }
    files
}

/// What a file alone does not tell.
#[derive(Debug, Default)]
struct Layout {
    /// Folders that hold files, with a `/` behind.
    folders: BTreeSet<String>,
    /// Files and folders that only tests are made of: they may stand on every wall.
    tests: BTreeSet<String>,
}

impl Layout {
    fn of(files: &[(String, String)]) -> Self {
        let mut layout = Self::default();
        for (path, text) in files {
            layout.folders.extend(path.rfind('/').map(|at| path[..=at].to_owned()));
            let folder = path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix(".rs")).unwrap_or(path);
            for module in Source::read(text).test_modules {
                layout.tests.extend([format!("{folder}/{module}.rs"), format!("{folder}/{module}/")]);
            }
        }
        layout
    }

    fn is_test(&self, path: &str) -> bool {
        let within = |test: &String| path == test || (test.ends_with('/') && path.starts_with(test));
        path.ends_with("/tests.rs") || self.tests.iter().any(within)
    }

    /// A room's or folder's top file.
    fn is_top(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches(".rs"));
        path.ends_with("/mod.rs") || depth_of(path) <= 1 || self.folders.contains(&folder)
    }
}

fn check_file(path: &str, text: &str, layout: &Layout) -> Vec<String> {
    let source = Source::read(text);
    let paths = source.paths(depth_of(path));
    let mut found = check_sizes(path, text);
    found.extend(check_unfinished(text, &paths));
    if layout.is_top(path) && !text.starts_with("//! ") {
        found.push((1, "a top file begins with `//!`: what it knows and must not know".to_owned()));
    }
    if !layout.is_test(path) {
        found.extend(check_walls(path, &source, &paths));
    }
    found.sort();
    found.dedup();
    found.into_iter().map(|(line, problem)| format!("{path}:{line}: {problem}")).collect()
}

/// Tests and benches stand on every wall; for the rest they are held to the same.
fn check_test(path: &str, text: &str) -> Vec<String> {
    let mut found = check_sizes(path, text);
    found.extend(check_unfinished(text, &Source::read(text).paths(0)));
    let is_top = path.ends_with("/main.rs") || path.ends_with("/mod.rs") || path.split('/').count() == 2;
    if is_top && !text.starts_with("//! ") {
        found.push((1, "a top file begins with `//!`: what it tries".to_owned()));
    }
    found.into_iter().map(|(line, problem)| format!("{path}:{line}: {problem}")).collect()
}

fn room_of(path: &str) -> &str {
    let below = path.strip_prefix(CORE).or_else(|| path.strip_prefix("src/")).unwrap_or(path);
    below.split('/').next().unwrap_or(below).trim_end_matches(".rs")
}

/// How many modules deep a file's own module is; 0 is the crate's root.
fn depth_of(path: &str) -> usize {
    let crates = CRATES.iter().copied().chain([CORE, "src/"]);
    match crates.filter_map(|prefix| path.strip_prefix(prefix)).next().unwrap_or(path) {
        "lib.rs" | "main.rs" => 0,
        below => below.split('/').count() - usize::from(below.ends_with("/mod.rs")),
    }
}

type Found = Vec<(usize, String)>;

fn check_walls(path: &str, source: &Source, paths: &[Path]) -> Found {
    let room = room_of(path);
    let Some(wall) = WALLS.iter().find(|wall| wall.room == room) else {
        return vec![(1, format!("{room} is no room of the table in tests/tidy/walls.rs"))];
    };
    let dependencies = dependencies();
    let is_ours = |root: &str| !dependencies.contains(root) && !matches!(root, "std" | "core" | "alloc");
    let local = source.local_names(paths, is_ours);
    let mut found = Vec::new();
    for path in paths {
        found.extend(other_room(wall, path).map(|room| (path.line, format!("{} may not use {room}", wall.room))));
        let shown = reached(path).filter(|parts| path.exported && !OPEN_ROOMS.contains(&parts[0].as_str()));
        found.extend(shown.filter(|parts| parts[0] != wall.room).map(|parts| {
            let through = parts.join("::");
            (path.line, format!("{} re-exports crate::{through}: who uses it would see through the wall", wall.room))
        }));
        let root = path.parts[0].as_str();
        let is_crate =
            dependencies.contains(root) && (path.imported || (path.parts.len() > 1 && !local.contains(root)));
        if is_crate && wall.crates.is_some_and(|crates| crates.iter().all(|(known, _)| *known != root)) {
            found.push((path.line, format!("{} may not use the crate {root}", wall.room)));
        }
        let never = wall.never.iter().copied().flatten().filter(|name| names(path, name));
        found.extend(never.map(|name| (path.line, format!("{} may never name {name}", wall.room))));
    }
    found
}

/// Where the path leads to below the crate's root, if it goes there.
fn reached(path: &Path) -> Option<&[String]> {
    let parts = &path.parts;
    let supers = parts.iter().take_while(|part| *part == "super").count();
    let rest = match parts[0].as_str() {
        "crate" | "callgate" | "callgate_core" => &parts[1..],
        "super" if supers >= path.depth => &parts[supers..],
        _ => return None,
    };
    (!rest.is_empty()).then_some(rest)
}

/// The part of another room that the path leads to, if the wall forbids it.
fn other_room(wall: &Wall, path: &Path) -> Option<String> {
    let rest = reached(path)?;
    let room = rest.first()?;
    let reached = rest.join("::");
    let is_within = |part: &str| {
        part.is_empty() || reached == part || reached.strip_prefix(part).is_some_and(|rest| rest.starts_with("::"))
    };
    (room != wall.room && !wall.rooms.iter().any(|(part, _)| is_within(part))).then(|| format!("crate::{reached}"))
}

/// True when `name` is a stretch of the path.
fn names(path: &Path, name: &str) -> bool {
    let name: Vec<&str> = name.split("::").collect();
    path.parts.windows(name.len()).any(|stretch| stretch.iter().zip(&name).all(|(part, word)| part == word))
}

/// The foreign crates of both `Cargo.toml`, as Rust names them.
fn dependencies() -> BTreeSet<&'static str> {
    static NAMES: std::sync::LazyLock<BTreeSet<String>> = std::sync::LazyLock::new(|| {
        let manifests = [include_str!("../../Cargo.toml"), include_str!("../../src/core/Cargo.toml")];
        let lines = manifests.iter().flat_map(|manifest| {
            let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
            section.lines().take_while(|line| !line.starts_with('['))
        });
        let names = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['=', '.']).next());
        let names = names.map(|name| name.trim().replace('-', "_"));
        names.filter(|name| !name.is_empty() && !name.starts_with("callgate")).collect()
    });
    NAMES.iter().map(String::as_str).collect()
}

fn check_sizes(path: &str, text: &str) -> Found {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        found.push((lines, format!("the file has {lines} lines; {LINES_MAX} are enough")));
    }
    if !LONG_LINES.iter().any(|(exempt, _)| path.starts_with(exempt)) {
        let long = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
        found.extend(long.map(|(i, line)| {
            (i + 1, format!("the line has {} characters; {COLUMNS_MAX} are enough", line.chars().count()))
        }));
    }
    found
}

fn check_unfinished(text: &str, paths: &[Path]) -> Found {
    let marks = text.lines().enumerate().filter(|(_, line)| line.contains(UNFINISHED));
    let mut found: Found = marks.map(|(i, _)| (i + 1, format!("{UNFINISHED}: mend it"))).collect();
    for path in paths {
        let last = path.parts.last().filter(|last| matches!(last.as_str(), "todo!" | "unimplemented!"));
        found.extend(last.map(|last| (path.line, format!("{last} is left"))));
    }
    found
}

/// The file of a rule or a lint is its manual; its second paragraph begins with `first`.
fn check_manual(path: &str, id: &str, first: &str, text: &str) -> Vec<String> {
    let manual: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let mut found = Vec::new();
    if !manual.first().is_some_and(|line| line.starts_with(&format!("{id}: "))) {
        found.push(format!("{path}:1: the manual does not begin with `//! {id}: `"));
    }
    for word in [first, "Why", "Known problems"] {
        if !manual.iter().any(|line| line.starts_with(word)) {
            found.push(format!("{path}:1: the manual has no paragraph `{word}`"));
        }
    }
    found
}

/// Each file of the folder is registered by its name, but for what they share.
fn check_registered<'a>(
    folder: &str,
    shared: &[&str],
    paths: impl Iterator<Item = &'a str>,
    known: &BTreeSet<&str>,
) -> Vec<String> {
    let files = paths.filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".rs"));
    let files = files.filter(|file| !file.contains('/') && !shared.contains(file) && !known.contains(file));
    files.map(|file| format!("{folder}/{file}.rs:1: is not registered in {folder}/mod.rs")).collect()
}

/// A rule never sees another rule: its file, and those below it, name no sibling's module.
fn check_siblings(path: &str, text: &str, rules: &BTreeSet<&str>) -> Vec<String> {
    let below = path.strip_prefix(RULES).and_then(|path| path.strip_prefix('/')).unwrap_or_default();
    let own = below.trim_end_matches(".rs").split('/').next().unwrap_or_default();
    if !rules.contains(own) || path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let sibling = |path: &Path| {
        let supers = path.parts.iter().take_while(|part| *part == "super").count();
        let rest = match path.parts[0].as_str() {
            "crate" | "callgate_core" if path.parts.get(1).is_some_and(|room| room == "rules") => &path.parts[2..],
            "super" if supers + 1 == path.depth => &path.parts[supers..],
            _ => return None,
        };
        let name = rest.first()?.clone();
        (name != own && rules.contains(name.as_str())).then_some((path.line, name))
    };
    let paths = Source::read(text).paths(depth_of(path));
    paths
        .iter()
        .filter_map(sibling)
        .map(|(line, name)| format!("{path}:{line}: a rule may not see the rule {name}"))
        .collect()
}

/// Every rule has its section in the example policy, not commented out.
fn check_policy<'a>(policy: &str, rules: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let keys: BTreeSet<&str> = policy.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    let missing = rules.filter(|(id, section)| !keys.contains(id) && !keys.contains(section));
    missing.map(|(id, at)| format!("deploy/policy.example.yaml:1: the rule {id} has no section `{at}`")).collect()
}
