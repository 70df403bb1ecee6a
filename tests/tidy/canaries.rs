//! Canaries: each check runs on a violation, and must report it.

use std::collections::BTreeSet;

use super::{
    UNFINISHED, check_file, check_linear, check_manual, check_policy, check_registered, check_siblings, check_test,
    references::Sources,
};

/// Reports of the checks on one file.
fn report_problems(path: &str, text: &str) -> String {
    check_file(path, text, &BTreeSet::from(["src/core/domain/json/".to_owned()])).join("\n")
}

#[track_caller]
fn catches(path: &str, text: &str, problem: &str) {
    let said = report_problems(path, text);
    assert!(said.contains(problem), "{problem:?} was not reported about {path}:\n{text}\nonly: {said:?}");
}

#[test]
fn sizes_unfinished_work_and_missing_manuals_are_seen() {
    catches("src/store/x.rs", &"\n".repeat(401), "has 401 lines");
    catches("src/store/x.rs", &format!("\n// {}", "é".repeat(118)), "x.rs:2: the line has 121 characters");
    assert_eq!(report_problems("src/store/x.rs", &format!("// {}", "é".repeat(117))), "");
    catches("src/store/x.rs", &format!("\n// {UNFINISHED} later"), "x.rs:2: FIX");
    catches("src/store/x/mod.rs", "mod y;", "begins with `//!`");
    catches("src/x/lib.rs", "mod y;", "begins with `//!`");
    catches("src/core/domain/json.rs", "mod y;", "begins with `//!`");
}

#[test]
fn tests_are_held_to_the_same_sizes() {
    let said = |path: &str, text: &str| check_test(path, text).join("\n");
    assert!(said("tests/x.rs", &format!("//! x\n{}", "\n".repeat(400))).contains("has 401 lines"));
    assert!(said("tests/x/y.rs", &format!("// {}", "é".repeat(118))).contains("x/y.rs:1: the line has 121"));
    assert!(said("tests/y.rs", "fn f() {}").contains("begins with `//!`"));
    assert_eq!(said("tests/x/y.rs", "fn f() {}"), "");
}

#[test]
fn a_rule_without_its_manual_or_section_is_seen() {
    let manual = "//! x: what.\n//!\n//! Fires when.\n//!\n//! Why: so.\n//!\n//! Known problems: none.\n";
    let check = |id: &str, text: &str| check_manual("src/core/rules/x.rs", id, "Fires", text);
    assert!(check("x", manual).is_empty());
    assert_eq!(check("y", manual).len(), 1);
    assert_eq!(check("x", "//! x: what.\nfn f() {}\n//! Fires Why Known problems").len(), 3);
    assert_eq!(check("x", "").len(), 4);
    let missing = check_manual("src/core/tool_list/lint/x.rs", "x", "Reports", manual);
    assert_eq!(missing, ["src/core/tool_list/lint/x.rs:1: the manual has no paragraph `Reports`"]);
    let policy = "policy_engine:\n  loops:\n    repeat: { warning: 10 }\n  budgets:\n  # growth:\n";
    let missing = check_policy(
        policy,
        [("repeat", "repeat"), ("budget", "budgets"), ("growth", "growth"), ("same_call", "deduplication")].into_iter(),
    );
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(missing[0].contains("growth") && missing[1].contains("deduplication"), "{missing:?}");
}

#[test]
fn a_lint_or_rule_that_is_not_registered_is_seen() {
    let paths = [
        "src/core/tool_list/lint/x.rs",
        "src/core/tool_list/lint/mod.rs",
        "src/core/tool_list/lint/y.rs",
        "src/core/tool_list/lint/x/tests.rs",
    ];
    let folder = "src/core/tool_list/lint";
    let found = check_registered(folder, &["mod"], paths.into_iter(), &BTreeSet::from(["y"]));
    assert_eq!(found, ["src/core/tool_list/lint/x.rs:1: is not registered in src/core/tool_list/lint/mod.rs"]);
}

#[test]
fn a_rule_that_names_a_sibling_is_seen() {
    let check = |path: &str, text: &str| check_siblings(path, text, &BTreeSet::from(["x", "y"]));
    let seen = ["src/core/rules/x.rs:1: a rule may not see the rule y"];
    assert_eq!(check("src/core/rules/x.rs", "use super::{Context, y::ALIKE};"), seen);
    assert_eq!(check("src/core/rules/x.rs", "fn f() { super::y::check() }"), seen);
    assert_eq!(check("src/core/rules/x.rs", "use crate::{domain::z, rules::y};"), seen);
    assert_eq!(check("src/core/rules/x.rs", "use crate::rules::y::Y;"), seen);
    let below = check("src/core/rules/x/params.rs", "use super::super::y::Params;");
    assert_eq!(below, ["src/core/rules/x/params.rs:1: a rule may not see the rule y"]);
    let fine =
        "use super::{levels::Levels, x}; use crate::domain::y; mod y {} \n#[cfg(test)]\nmod tests { use super::y; }";
    assert!(check("src/core/rules/x.rs", fine).is_empty());
    assert!(check("src/core/rules/mod.rs", "pub mod y; use crate::rules::y;").is_empty());
}

#[test]
fn a_reference_that_leads_nowhere_is_seen() {
    // Put together, so that this file has no such reference.
    let page = |name: &str| format!("{name}.{}", "md");
    let (norm, other) = (page("docs/semantics"), page("docs/x"));
    let found = |path: &str, text: &str| {
        let files = [
            (path, text),
            (norm.as_str(), "# What is decided\n## The same call again\n```sh\n# no heading\n```\n### repeat\n"),
            ("src/core/rules/repeat.rs", "#[test]\nfn it_warns() {}"),
        ];
        Sources::of(files).check().join("\n")
    };
    for (path, text, problem) in [
        ("src/x.rs", format!("//! See {}.", page("semantics")), "is not there"),
        ("src/x.rs", format!("\n/// See {}", page("docs/other")), "src/x.rs:2: docs/other"),
        ("src/x.rs", format!("// {norm}, section 4"), "is named without its section"),
        ("migrations/1.sql", format!("-- {norm}#nothing"), "has no section #nothing"),
        ("src/x.rs", format!("// {norm}#no-heading"), "has no section #no-heading"),
        ("README.md", format!("[a]({}) [b]({norm}#the-same-call)", page("docs/a")), "has no section #the-same-call"),
        ("README.md", format!("[a]({}) [b]({norm}#the-same-call-again)", page("docs/a")), "README.md:1: docs/a"),
        (&other, "[here](#x) [there](../src/nothing.rs)".to_owned(), "src/nothing.rs is not there"),
        (&other, "[here](#x)".to_owned(), "has no section #x"),
        ("clients/python/README.md", format!("[a](../../{norm})"), "shows without it"),
        (&other, "`src/core/rules/x_*.rs`".to_owned(), "src/core/rules/x_*.rs is not there"),
        (&other, "`src/core/rules/repeat.rs::it_breaks`".to_owned(), "has no function it_breaks"),
    ] {
        let found = found(path, &text);
        assert!(found.contains(problem), "{problem:?} was not reported about {path}: {text}\nonly: {found:?}");
    }
    let links = format!("# X\n[a](#x) [b](../{norm}#the-same-call-again) [c](https://example.com/a.md#b)\n");
    let sound =
        format!("{links}`src/core/rules/*.rs` `src/core/rules/` `order/42` `src/core/rules/repeat.rs::it_warns`");
    assert_eq!(found(&other, &sound), "");
    assert_eq!(found("src/x.rs", &format!("/// See {norm}#repeat, and the README.md beside it.")), "");
    let rules = Sources::of([(norm.as_str(), "### repeat\n")]);
    assert_eq!(rules.check_rules(["repeat", "poll"].into_iter()), [format!("{norm} has no section #poll")]);
}

#[test]
fn a_command_that_does_not_exist_is_seen() {
    let files = [
        ("README.md", "```sh\nmake run   # builds\n```\n```text\nmake nothing\n```\n"),
        ("Makefile", "A ?= 1\nrun: b\n"),
        ("tests/store/main.rs", ""),
        ("src/bench/benches/engine.rs", ""),
    ];
    let sources = Sources::of(files);
    assert_eq!(sources.commands(), [("README.md", "make run".to_owned())]);
    for (command, is_wrong) in [
        ("make run", false),
        ("make walk", true),
        ("cargo nextest run --test store -E 'test(x)'", false),
        ("cargo test --test stores", true),
        ("cargo bench --bench engine", false),
        ("cargo bench --bench engines", true),
        ("callgate policy check callgate.yaml", false),
        ("callgate policy chek callgate.yaml", true),
        ("callgate explain CALL_ID --no-such-flag", true),
        ("psql -f x.sql", false),
    ] {
        assert_eq!(sources.wrong(command).is_some(), is_wrong, "{command}: {:?}", sources.wrong(command));
    }
}

#[test]
fn a_reader_of_foreign_text_without_a_row_is_seen() {
    let rows = "\"domain/x.rs: known; domain/y.rs: other\" <= 1";
    let said = |text: &str| check_linear("src/core/domain/x.rs", text, rows).join("\n");
    assert_eq!(said("pub fn known(text: &str) -> u8 {}\npub fn named(name: &str, at: usize) {}"), "");
    for text in
        ["pub fn other(text: &str) {}", "    pub fn other(\n        &self,\n        read: Option<&Json>,\n    ) {}"]
    {
        assert!(said(text).contains("x.rs: no row of tests/linear/counted/rows.rs names other"), "{text}");
    }
}
