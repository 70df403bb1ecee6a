//! Names of types, functions and tests. The rules: docs/glossary.md#rules-for-names.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::Regex;

use super::is_test;

/// Visible types that are defined more than once, each with its reason.
const SHARED: &[(&str, &str)] = &[("Params", "of a rule, by the rule's module")];
/// Participles and containers, which name no type, not even a private one.
const BARE_TYPES: &str = "Answered|Asked|Begun|Checked|Chosen|Done|Form|Found|Given|Gone|Held|Judged|Kept|Kind|Known|\
                          Line|Lost|Made|Meant|Named|Part|Place|Refused|Reported|Row|Said|Seen|Shown|Stored|Taken|\
                          Told|Wanted|Way|What|Who|Whom|Whose|Why";
/// Words that name no function: they are neither a verb with its object nor a conversion nor a predicate.
const BARE_FUNCTIONS: &str = "told|said|look|kept|in_words";
/// The most characters of a test's name.
const TEST_NAME_MAX: usize = 80;

static TYPE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^ *pub(?:\([^)]*\))? (?:unsafe )?(?:struct|enum|trait|type|union) (\w+)").expect("a pattern")
});
static BARE: LazyLock<Regex> = LazyLock::new(|| {
    let types = format!("(?:struct|enum|trait|type|union) ({BARE_TYPES})");
    Regex::new(&format!(r"(?m)^ *(?:pub(?:\([^)]*\))? )?(?:unsafe |async |const )*(?:{types}|fn ({BARE_FUNCTIONS}))\b"))
        .expect("a pattern")
});
static TEST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"#\[(?:tokio::)?test(?:\([^\]]*\))?\]\s*(?:(?:#\[[^\n]*\]|//[^\n]*)\s*)*(?:async )?fn (\w+)")
        .expect("a pattern")
});
static QUESTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^(?:what|who|whose|whom|which|where|how|why)_").expect("a pattern"));

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

/// Bare names of types and functions, and names of tests that are too long or begin with a question word.
pub(crate) fn check_words(path: &str, text: &str) -> Vec<String> {
    let bare = BARE.captures_iter(text).filter_map(|found| found.get(1).or(found.get(2)));
    let bare =
        bare.map(|name| (name.start(), format!("`{}` is a riddle: name the thing or the action", name.as_str())));
    let tests = TEST.captures_iter(text).filter_map(|found| found.get(1));
    let tests = tests.filter_map(|name| {
        let problem = match name.as_str() {
            name if name.len() > TEST_NAME_MAX => {
                format!("the test's name has {} characters; {TEST_NAME_MAX} are enough", name.len())
            }
            name if QUESTION.is_match(name) => format!("`{name}` does not begin with its subject"),
            _ => return None,
        };
        Some((name.start(), problem))
    });
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    bare.chain(tests).map(|(at, problem)| format!("{path}:{}: {problem}", line(at))).collect()
}

#[test]
fn names_with_several_meanings_are_found() {
    let files = [
        ("src/a.rs", "pub struct Seat;\nstruct Desk;\npub enum Params {}"),
        ("src/b.rs", "pub(crate) enum Seat {}\nstruct Desk;\npub struct Params;"),
        ("src/b/tests.rs", "pub struct Only;"),
        ("src/c.rs", "pub struct Only;\n#[cfg(test)]\nmod tests {\n    pub struct Seat;\n}"),
    ];
    assert_eq!(check(files.into_iter()), [r#"Seat has several meanings: {"src/a.rs", "src/b.rs"}"#]);
    assert_eq!(check(files[..1].iter().copied()), ["Params has one meaning: delete it from `SHARED`"]);
}

#[test]
fn names_that_are_riddles_are_found() {
    let of = |text: &str| check_words("x.rs", text);
    let riddle = |line: usize, name: &str| format!("x.rs:{line}: `{name}` is a riddle: name the thing or the action");
    assert_eq!(
        of("struct Told;\nstruct ToldBy;\n    pub(super) async fn look() {}"),
        [riddle(1, "Told"), riddle(3, "look")]
    );
    assert_eq!(of("fn look_up() {}\nstruct Lookout;\n// fn said\nlet said = 1;"), [""; 0]);
}

#[test]
fn names_of_tests_are_checked() {
    let test =
        |name: &str| check_words("x.rs", &format!("#[tokio::test(flavor = \"x\")]\n#[ignore]\nasync fn {name}() {{}}"));
    assert_eq!(test("expired_lease_settles_as_unknown"), [""; 0]);
    assert_eq!(test("what_is_wrong_is_told"), ["x.rs:3: `what_is_wrong_is_told` does not begin with its subject"]);
    assert_eq!(test(&"a".repeat(81)), ["x.rs:3: the test's name has 81 characters; 80 are enough"]);
    assert_eq!(check_words("x.rs", "fn what_is_wrong() {}"), [""; 0]);
}
