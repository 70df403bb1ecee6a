//! References: pages and sections named in comments, links between pages, paths and tests named in pages, commands
//! shown in them. `docs/` is the norm, so a reference to it names its section.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path as FilePath,
    process::Command,
    sync::LazyLock,
};

use regex::Regex;

use super::ROOT;

/// Suffixes of files with references.
const TEXTS: [&str; 9] = [".rs", ".md", ".proto", ".sql", ".toml", ".yaml", ".sh", "Makefile", ".ci/run"];
/// Pages that a registry shows without the files next to them: they link to sections and addresses only.
const PACKAGED: [&str; 3] = ["clients/python/README.md", "clients/typescript/README.md", "deploy/packages/README.md"];
/// Folders that are no part of the sources.
const FOREIGN: [&str; 3] = ["target", ".git", "node_modules"];

static PAGE: LazyLock<Regex> = LazyLock::new(|| pattern(r#"([A-Za-z0-9_./-]+\.md)(?:(?:" \}\})?#([A-Za-z0-9_-]+))?"#));
static LINK: LazyLock<Regex> = LazyLock::new(|| pattern(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)"));
static QUOTED: LazyLock<Regex> = LazyLock::new(|| pattern(r"`([A-Za-z0-9_.-]+/[A-Za-z0-9_./*-]*)(?:::([a-z0-9_]+))?`"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// The sources: every file, and the text of those with references.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    paths: BTreeSet<String>,
    texts: BTreeMap<String, String>,
}

impl Sources {
    /// Files by name and text, as if these were all.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let mut sources = Self::default();
        files.into_iter().for_each(|(path, text)| sources.add(path, Some(text.to_owned())));
        sources
    }

    fn read() -> Self {
        let mut sources = Self::default();
        sources.walk(FilePath::new(ROOT), "");
        sources
    }

    fn walk(&mut self, folder: &FilePath, prefix: &str) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("readable");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.path().is_dir() && !FOREIGN.contains(&name.as_str()) {
                self.walk(&entry.path(), &format!("{path}/"));
            } else if entry.path().is_file() {
                let text = TEXTS.iter().any(|end| path.ends_with(end));
                self.add(&path, text.then(|| fs::read_to_string(entry.path()).expect("UTF-8")));
            }
        }
    }

    fn add(&mut self, path: &str, text: Option<String>) {
        let folders = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
        self.paths.extend(folders.chain([path.to_owned()]));
        self.texts.extend(text.map(|text| (path.to_owned(), text)));
    }

    /// Everything that leads nowhere.
    pub(crate) fn check(&self) -> Vec<String> {
        let lines = self.texts.iter().flat_map(|(path, text)| {
            let lines = text.lines().enumerate();
            lines.flat_map(move |(at, line)| {
                self.line(path, line).into_iter().map(move |p| format!("{path}:{}: {p}", at + 1))
            })
        });
        lines.collect()
    }

    fn line(&self, path: &str, line: &str) -> Vec<String> {
        let mut found = Vec::new();
        if path.ends_with(".md") {
            let links = LINK.captures_iter(line).filter(|link| !link[1].contains("://"));
            found.extend(links.filter_map(|link| {
                let page = if link[1].is_empty() { path.to_owned() } else { beside(path, &link[1]) };
                if PACKAGED.contains(&path) && !link[1].is_empty() {
                    return Some(format!("{page} is linked from a page that a registry shows without it"));
                }
                self.missing(&page, link.get(2).map(|anchor| anchor.as_str()))
            }));
            found.extend(QUOTED.captures_iter(line).filter_map(|quoted| self.quoted_path("", &quoted)));
            return found;
        }
        for page in PAGE.captures_iter(line) {
            let name = &page[1];
            let is_ours = name.starts_with("docs/") || !name.contains('/') && !name.contains("README");
            found.extend(match page.get(2) {
                None if is_ours && self.paths.contains(name) => Some(format!("{name} is named without its section")),
                anchor if is_ours => self.missing(name, anchor.map(|anchor| anchor.as_str())),
                _ => None,
            });
        }
        found
    }

    fn missing(&self, page: &str, anchor: Option<&str>) -> Option<String> {
        if !self.paths.contains(page) {
            return Some(format!("{page} is not there"));
        }
        let anchor = anchor?;
        let has = self.texts.get(page).is_some_and(|text| anchors(text).contains(anchor));
        (!has).then(|| format!("{page} has no section #{anchor}"))
    }

    /// A path in a page that begins with a folder of ours, and the test in it.
    fn quoted_path(&self, base: &str, quoted: &regex::Captures<'_>) -> Option<String> {
        let (whole, folder) = (&quoted[1], quoted[1].split('/').next().unwrap_or_default());
        let known = |path: &str| self.paths.contains(path.trim_end_matches('/'));
        let base = [base, ""].into_iter().find(|base| known(&format!("{base}{folder}")))?;
        let path = format!("{base}{whole}");
        let (before, after) = path.split_once('*').unwrap_or((&path, ""));
        let is_there = if path.contains('*') {
            self.paths.iter().any(|path| path.starts_with(before) && path.ends_with(after))
        } else {
            known(&path)
        };
        if !is_there {
            return Some(format!("{path} is not there"));
        }
        let name = quoted.get(2)?.as_str();
        let has = self.texts.get(&path).is_some_and(|text| text.contains(&format!("fn {name}(")));
        (!has).then(|| format!("{path} has no function {name}"))
    }

    /// Every rule has its section in the norm.
    pub(crate) fn check_rules<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
        let norm = FilePath::new("docs").join("semantics").with_extension("md");
        ids.filter_map(|id| self.missing(&norm.to_string_lossy(), Some(id))).collect()
    }

    /// The commands that pages show, by the page they are in.
    pub(crate) fn commands(&self) -> Vec<(&str, String)> {
        let pages = self.texts.iter().filter(|(path, _)| path.ends_with(".md"));
        let shown = pages.flat_map(|(path, text)| {
            let mut is_shell = false;
            text.lines().filter_map(move |line| {
                if let Some(fence) = line.strip_prefix("```") {
                    is_shell = !is_shell && fence == "sh";
                    return None;
                }
                let command = line.split('#').next().unwrap_or_default().trim();
                (is_shell && !command.is_empty()).then(|| (path.as_str(), command.to_owned()))
            })
        });
        shown.collect()
    }

    /// The problem of a command; none for other programs.
    pub(crate) fn wrong(&self, command: &str) -> Option<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let has = |path: &str| self.paths.contains(path);
        let after = |flag: &str| words.iter().skip_while(|word| **word != flag).nth(1);
        match words.as_slice() {
            ["make", target, ..] => {
                let text = self.texts.get("Makefile").map_or("", String::as_str);
                (!text.contains(&format!("\n{target}:"))).then(|| format!("make has no target {target}"))
            }
            ["cargo", ..] => {
                let test = after("--test")
                    .filter(|name| !has(&format!("tests/{name}.rs")) && !has(&format!("tests/{name}/main.rs")));
                let bench = after("--bench").filter(|name| !has(&format!("src/bench/benches/{name}.rs")));
                test.or(bench).map(|name| format!("cargo has no test or benchmark {name}"))
            }
            ["callgate" | "target/debug/callgate" | "target/release/callgate", rest @ ..] => {
                // Arguments after `--` are another program's.
                let rest = rest.iter().take_while(|word| !matches!(**word, "|" | ">" | "&&" | "--"));
                let help = Command::new(env!("CARGO_BIN_EXE_callgate")).args(rest).arg("--help").output();
                let help = help.expect("callgate runs");
                let said = String::from_utf8_lossy(&help.stderr).lines().next().unwrap_or_default().to_owned();
                (!help.status.success()).then(|| format!("{command}: {said}"))
            }
            _ => None,
        }
    }
}

/// The path of a link in a page.
fn beside(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a page, made of its headings as forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let headings = text.lines().filter(|line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    let kept = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    let anchor = |heading: &str| heading.trim_start_matches('#').trim().to_lowercase().replace(|c| !kept(c), "");
    headings.map(|heading| anchor(heading).replace(' ', "-")).collect()
}

#[test]
fn every_reference_leads_somewhere() {
    let sources = Sources::read();
    assert!(sources.texts.len() > 100, "only {} texts were found", sources.texts.len());
    let mut violations = sources.check();
    violations.extend(sources.check_rules(callgate_core::rules::RULES.iter().map(|rule| rule.id)));
    assert!(violations.is_empty(), "{} references\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn every_command_that_a_page_shows_is_one() {
    let sources = Sources::read();
    let commands = sources.commands();
    assert!(commands.len() > 10, "only {} commands were found", commands.len());
    let wrong: Vec<String> =
        commands.iter().filter_map(|(page, command)| Some(format!("{page}: {}", sources.wrong(command)?))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
