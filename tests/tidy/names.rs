//! Names of types: a visible one has one meaning. The rules: docs/glossary.md#rules-for-names.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::Regex;

use super::is_test;

/// Visible types that are defined more than once, each with its reason.
const SHARED: &[(&str, &str)] = &[("Params", "of a rule, by the rule's module")];

static TYPE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^ *pub(?:\([^)]*\))? (?:unsafe )?(?:struct|enum|trait|type|union) (\w+)").expect("a pattern")
});

/// Visible types of `src` that are defined in several files, and entries of [`SHARED`] that are not.
pub(crate) fn check<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut defined = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (path, text) in files.filter(|(path, _)| !is_test(path)) {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for name in TYPE.captures_iter(text).filter_map(|found| found.get(1)) {
            defined.entry(name.as_str()).or_default().insert(path);
        }
    }
    let is_shared = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
    let doubled = defined.iter().filter(|(name, paths)| paths.len() > 1 && !is_shared(name));
    let doubled = doubled.map(|(name, paths)| format!("{name} has several meanings: {paths:?}"));
    let stale = SHARED.iter().filter(|(name, _)| defined.get(name).is_none_or(|paths| paths.len() < 2));
    doubled.chain(stale.map(|(name, _)| format!("{name} has one meaning: delete it from `SHARED`"))).collect()
}

#[test]
fn names_with_several_meanings_are_found() {
    let files = [
        ("src/a.rs", "pub struct Seen;\nstruct Row;\npub enum Params {}"),
        ("src/b.rs", "pub(crate) enum Seen {}\nstruct Row;\npub struct Params;"),
        ("src/b/tests.rs", "pub struct Only;"),
        ("src/c.rs", "pub struct Only;\n#[cfg(test)]\nmod tests {\n    pub struct Seen;\n}"),
    ];
    assert_eq!(check(files.into_iter()), [r#"Seen has several meanings: {"src/a.rs", "src/b.rs"}"#]);
    assert_eq!(check(files[..1].iter().copied()), ["Params has one meaning: delete it from `SHARED`"]);
}
