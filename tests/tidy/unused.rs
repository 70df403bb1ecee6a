//! Unused public items. The compiler reports those of a crate that no other can reach; this finds the others by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::Regex;

static ITEM: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?m)^[ ]*pub (?:const )?(?:async )?(?:unsafe )?(?:fn|struct|enum|trait|type|const|static|mod) (?:_|r#)?(\w+)",
    )
    .expect("a pattern")
});
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[A-Za-z_]\w*\b").expect("a pattern"));
static EXPORT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)\bpub use [^;]*;").expect("a pattern"));
static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^\s*//.*$").expect("a pattern"));

/// Public items in `src` named only at their declaration and export, and not in tests.
pub(crate) fn check<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let (mut declared, mut named) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    for (path, text) in files {
        let text = COMMENT.replace_all(text, "");
        let text = EXPORT.replace_all(&text, "");
        for word in WORD.find_iter(&text) {
            *named.entry(word.as_str().to_owned()).or_default() += 1;
        }
        if path.starts_with("src/") {
            declared.extend(ITEM.captures_iter(&text).map(|item| (item[1].to_owned(), path.to_owned())));
        }
    }
    let unused = declared.into_iter().filter(|(name, _)| named[name.as_str()] == 1);
    unused.map(|(name, path)| format!("{path}: {name} is public, and nothing uses it")).collect()
}

#[test]
fn unused_item_is_detected() {
    let files = [
        (
            "src/a.rs",
            "pub use b::{lonely, used};\n/// lonely\npub fn lonely() {}\npub const fn used() {}\npub struct Alone;",
        ),
        ("tests/x.rs", "fn f() { used() }\n// Alone"),
    ];
    let seen = check(files.into_iter());
    assert_eq!(
        seen,
        ["src/a.rs: Alone is public, and nothing uses it", "src/a.rs: lonely is public, and nothing uses it"]
    );
}
