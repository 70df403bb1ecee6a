//! Names of types and functions: one meaning for each visible type of a crate, and no bare participle or container.
//! The rules: docs/glossary.md#rules-for-names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::is_test;

/// Visible types that are defined more than once, each with its reason.
const SHARED: &[(&str, &str)] = &[
    ("Action", "of clap, one a command"),
    ("Error", "of a module, as in Rust's libraries"),
    ("Page", "of a template's module"),
    ("Params", "of a rule, by the rule's module"),
];
/// Participles and containers that say nothing without their path. A qualified one is fine: `ReportRow`.
const BARE: [&str; 33] = [
    "Asked", "Found", "Form", "Given", "Handed", "Heard", "Held", "Judged", "Kept", "Kind", "Known", "Line", "Look",
    "Looked", "Named", "Part", "Place", "Row", "Said", "Saw", "Seen", "Shown", "Spent", "Stored", "Taken", "Thing",
    "Told", "Touched", "Used", "Wanted", "Way", "Whole", "Wrapped",
];
/// Functions that are no verb with its object.
const RIDDLES: [&str; 5] = ["told", "said", "look", "kept", "in_words"];

static TYPE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^ *(pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait|type|union) (\w+)").expect("a pattern")
});
static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^ *(?:\w+(?:\([^)]*\))? )*fn (\w+)").expect("a pattern"));

/// Violations in all files of `src`.
pub(crate) fn check<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let (mut visible, mut found) = (BTreeMap::<&str, BTreeSet<&str>>::new(), Vec::new());
    for (path, text) in files.filter(|(path, _)| !is_test(path)) {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for name in TYPE.captures_iter(text) {
            let name = (name.get(1), name.get(2).map_or("", |name| name.as_str()));
            if name.0.is_some() {
                visible.entry(name.1).or_default().insert(path);
            }
            if BARE.contains(&name.1) {
                found.push(format!("{path}: the type {} has no noun of its own", name.1));
            }
        }
        let riddles = FUNCTION.captures_iter(text).filter_map(|name| RIDDLES.iter().find(|one| **one == &name[1]));
        found.extend(riddles.map(|name| format!("{path}: the function {name} is no verb with its object")));
    }
    let shared = |name: &str| SHARED.iter().any(|(known, _)| *known == name);
    let doubled = visible.iter().filter(|(name, paths)| paths.len() > 1 && !shared(name));
    found.extend(doubled.map(|(name, paths)| format!("{name} is defined in {paths:?}: one meaning a name")));
    let unused = SHARED.iter().filter(|(name, _)| visible.get(name).is_none_or(|paths| paths.len() < 2));
    found.extend(unused.map(|(name, _)| format!("{name} is in the list of shared names, and defined once")));
    found
}
