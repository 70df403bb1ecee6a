//! Names are unique, and `deploy/TELEMETRY.md` lists each.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_name_is_ours_and_appears_once() {
    // A metric may be of what a field says: `callgate.policy.revision`.
    for list in [SPANS, METRICS, FIELDS] {
        let distinct: BTreeSet<&str> = list.iter().copied().collect();
        assert_eq!(distinct.len(), list.len(), "{list:?}");
    }
    for name in [SPANS, METRICS, FIELDS].concat() {
        assert!(name.starts_with("callgate."), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'.' || b == b'_'), "{name}");
    }
}

/// Every string of a program's text that begins like a name of ours, and is not that of a file or of a setting of
/// connections.
fn ours(text: &str) -> BTreeSet<&str> {
    let is_no_file = |name: &&str| !name.ends_with(".yaml") && !name.ends_with(".lock");
    let is_no_setting = |name: &&str| *name != "callgate.tenants";
    let quoted = regex::Regex::new(r#""(callgate\.[a-z_.]+)""#).expect("a pattern");
    quoted
        .captures_iter(text)
        .filter_map(|found| found.get(1))
        .map(|name| name.as_str())
        .filter(is_no_file)
        .filter(is_no_setting)
        .collect()
}

/// The programs below a folder.
fn programs(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            programs(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The docs of all names, as a page; its beginning is written by hand.
fn page(old: &str) -> String {
    let source = include_str!("../names.rs");
    let entry = regex::Regex::new(r#"((?:    /// .*\n)+)    [A-Z_]+ = "([^"]+)","#).expect("a pattern");
    let loose = regex::Regex::new(r#"((?:/// .*\n)+)pub const ([A-Z_]+): &str = "([^"]+)";"#).expect("a pattern");
    let link = regex::Regex::new(r"\[`([A-Z_]+)`\]").expect("a pattern");
    let value = |name: &str| {
        let line = regex::Regex::new(&format!(r#"\b{name}(?:: &str)? = "([^"]+)""#)).expect("a pattern");
        line.captures(source).map_or_else(|| panic!("{name} is none"), |found| format!("`{}`", &found[1]))
    };
    let told = |doc: &str| {
        let text = doc.lines().map(|line| line.trim().trim_start_matches("///").trim()).collect::<Vec<_>>().join(" ");
        link.replace_all(&text, |found: &regex::Captures<'_>| value(&found[1])).replace('|', "\\|")
    };
    let mut page = format!("{}\n", old.split("\n## ").next().expect("a beginning").trim_end());
    for (title, list) in [("Spans", "SPANS"), ("Metrics", "METRICS"), ("Fields of callgate", "FIELDS")] {
        let from = source.find(&format!("\n    {list}:\n")).expect("a list");
        let part = &source[from..from + source[from..].find("\n}").expect("its end")];
        page.push_str(&format!("\n## {title}\n\n| name | meaning |\n|---|---|\n"));
        for found in entry.captures_iter(part) {
            page.push_str(&format!("| `{}` | {} |\n", &found[2], told(&found[1])));
        }
    }
    page.push_str("\n## Names by OpenTelemetry's conventions\n\n| name | meaning |\n|---|---|\n");
    let from = source.find("\n    CONVENTIONS:\n").expect("a list");
    for found in entry.captures_iter(&source[from..]) {
        page.push_str(&format!("| `{}` | {} |\n", &found[2], told(&found[1])));
    }
    for found in loose.captures_iter(source).filter(|found| found[2].starts_with("METRIC_")) {
        page.push_str(&format!("| `{}` | {} |\n", &found[3], told(&found[1])));
    }
    page
}

#[test]
fn the_page_of_names_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/TELEMETRY.md");
    let old = std::fs::read_to_string(path).expect("a page");
    let page = page(&old);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).expect("written");
    }
    assert!(std::fs::read_to_string(path).expect("a page") == page, "UPDATE=1 writes {path}; then review it");
}

#[test]
fn every_name_that_is_used_is_listed() {
    let listed: BTreeSet<&str> = [SPANS, METRICS, FIELDS].concat().into_iter().collect();
    let mut found = Vec::new();
    programs(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut found);
    for path in found {
        let text = std::fs::read_to_string(&path).expect("text");
        let unlisted: Vec<_> = ours(&text).into_iter().filter(|name| !listed.contains(name)).collect();
        assert!(unlisted.is_empty(), "{}: {unlisted:?}", path.display());
    }
}
