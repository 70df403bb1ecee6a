//! Code structure: layers within crates, sizes, nothing unfinished or unused, every rule with its manual. All
//! violations are listed at once. Dependencies between crates are their `[dependencies]`, and restrictions of the
//! standard library their `clippy.toml`.

mod canaries;
mod dependencies;
mod layers;
mod linear;
mod names;
mod prose;
mod references;
mod unused;
mod vocabulary;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path as FilePath, PathBuf},
};

use linear::{ROWS, check_linear};

const LINES_MAX: usize = 400;
const COLUMNS_MAX: usize = 120;
const LINTS: &str = "src/core/tool_list/lint";
const RULES: &str = "src/core/rules";
/// Shared modules of rules.
const NO_RULES: [&str; 8] = ["mod", "condition", "context", "evidence", "explained_call", "levels", "rule", "set"];
/// Shared modules of lints.
const NO_LINTS: [&str; 5] = ["mod", "facts", "prose", "testing", "tests"];
/// Files with lines that are better left whole.
const LONG_LINES: &[(&str, &str)] = &[
    ("src/agent/mcp/", "messages, word for word"),
    ("tests/tidy/vocabulary.rs", "one pattern a line"),
    ("src/core/retry/classify/cases/", "providers' answers, word for word"),
    ("src/core/retry/classify/lines.rs", "providers' answers, word for word"),
    ("src/core/retry/classify/text.rs", "one pattern a line"),
    ("tests/replay.rs", "lines of output, byte for byte"),
];
/// In two parts, so that this file is not reported itself.
const UNFINISHED: &str = concat!("FIX", "ME");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_house_is_tidy() {
    let files = rust_files(&FilePath::new(ROOT).join("src"));
    assert!(files.len() > 30, "only {} files were found below src", files.len());
    let folders = files.iter().filter_map(|(path, _)| Some(path[..=path.rfind('/')?].to_owned())).collect();
    let mut violations: Vec<String> = files.iter().flat_map(|(path, text)| check_file(path, text, &folders)).collect();
    let tests = rust_files(&FilePath::new(ROOT).join("tests"));
    violations.extend(tests.iter().flat_map(|(path, text)| check_test(path, text)));
    violations.extend(names::check(files.iter().map(|(path, text)| (path.as_str(), text.as_str()))));
    violations.extend(files.iter().flat_map(|(path, text)| vocabulary::check(path, text)));
    violations.extend(files.iter().chain(&tests).flat_map(|(path, text)| names::check_words(path, text)));
    violations.extend(unused::check(files.iter().chain(&tests).map(|(path, text)| (path.as_str(), text.as_str()))));
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
    let read = files.iter().filter(|(path, _)| !is_test(path));
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

/// Files that only tests are made of.
pub(crate) fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs")
        || ["/tests/", "/testing/"].iter().any(|folder| path.contains(folder))
        || path.ends_with("/testing.rs")
}

/// The top file of a crate or a folder.
fn is_top(path: &str, folders: &BTreeSet<String>) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    matches!(name, "lib.rs" | "main.rs" | "mod.rs") || folders.contains(&format!("{}/", path.trim_end_matches(".rs")))
}

fn check_file(path: &str, text: &str, folders: &BTreeSet<String>) -> Vec<String> {
    let mut found = check_sizes(path, text);
    found.extend(check_unfinished(text));
    found.extend(prose::check_heading(text));
    if is_top(path, folders) && !text.starts_with("//! ") {
        found.push((1, "a top file begins with `//!`: what it knows and must not know".to_owned()));
    }
    found.extend(layers::check(path, text));
    found.sort();
    found.dedup();
    found.into_iter().map(|(line, problem)| format!("{path}:{line}: {problem}")).collect()
}

fn check_test(path: &str, text: &str) -> Vec<String> {
    let mut found = check_sizes(path, text);
    found.extend(check_unfinished(text));
    found.extend(prose::check_heading(text));
    let is_top = path.ends_with("/main.rs") || path.ends_with("/mod.rs") || path.split('/').count() == 2;
    if is_top && !text.starts_with("//! ") {
        found.push((1, "a top file begins with `//!`: what it tries".to_owned()));
    }
    found.into_iter().map(|(line, problem)| format!("{path}:{line}: {problem}")).collect()
}

type Problems = Vec<(usize, String)>;

fn check_sizes(path: &str, text: &str) -> Problems {
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

fn check_unfinished(text: &str) -> Problems {
    let marks = text.lines().enumerate().filter(|(_, line)| line.contains(UNFINISHED));
    marks.map(|(i, _)| (i + 1, format!("{UNFINISHED}: mend it"))).collect()
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
    let text = text.replace("super::super::", "super::");
    let named = ["super", "rules", "crate::rules"].into_iter().flat_map(|root| layers::below(root, &text));
    let named = named.filter(|(_, name)| name != own && rules.contains(name.as_str()));
    named.map(|(line, name)| format!("{path}:{line}: a rule may not see the rule {name}")).collect()
}

/// Every rule has its section in the example policy, not commented out.
fn check_policy<'a>(policy: &str, rules: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let keys: BTreeSet<&str> = policy.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    let missing = rules.filter(|(id, section)| !keys.contains(id) && !keys.contains(section));
    missing.map(|(id, at)| format!("deploy/policy.example.yaml:1: the rule {id} has no section `{at}`")).collect()
}
