//! Words of the glossary's "not" column in help, messages, console templates and names, and whole phrases of it in
//! pages. docs/glossary.md#write-this-not-that holds the column.

use std::{fs, path::Path, sync::LazyLock};

use regex::Regex;

use super::{ROOT, is_test, prose};

/// Segments of names that no name has any more. Add a word with its last use gone.
const NAMES: [&str; 3] = ["flounder", "floundering", "losers"];
/// The folder of the console's templates.
const TEMPLATES: &str = "src/server/console/templates";
/// The column itself.
const COLUMN: &str = concat!("docs/glossary", ".md");

static WORD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:people|somebody|whoever|who asks|tells?|told|says?|said|beside|mend(?:s|ed)?|anew|(?:re)?seal(?:s|ed)?|unname|unheard of|nobody knows|out of reach|turned away|left alone|held against|lost race|looks? up|twins?|floundering)\b",
    )
    .expect("a pattern")
});
static PHRASE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:who asks|turned away|how it fares|lost race|one look for all|forgotten by memory|what the earlier call gave|(?:made?|sealed?) anew|(?:held|hold) against|unheard of|nobody knows|needs somebody|other than last time|reads no further)\b",
    )
    .expect("a pattern")
});
static CALL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:(?:trace|debug|info|warn|error|out|outln|errln|bail|anyhow)!|#\[error|\.(?:with_)?context)\(")
        .expect("a pattern")
});
static HELP: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^( *)#\[derive\([^\]]*\b(?:Args|Parser|Subcommand|ValueEnum)\b").expect("a pattern")
});
static LITERAL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""(?:[^"\\]|\\(?s:.))*""#).expect("a pattern"));
static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^\s*//.*$").expect("a pattern"));
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`[^`\n]*`|\{[^}\n]*\}").expect("a pattern"));
static TAG: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<[^>]*>").expect("a pattern"));
static SEGMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[A-Z]?[a-z]+").expect("a pattern"));

/// The arguments of a call, from its opening parenthesis on.
fn arguments(text: &str) -> &str {
    let (mut depth, mut is_text, mut is_escaped) = (0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'(' if !is_text => depth += 1,
            b')' if !is_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// Matches of `words` in prose: what is code or a placeholder does not count.
fn matches(words: &Regex, path: &str, prose: &str) -> Vec<String> {
    let prose = CODE.replace_all(prose, "");
    words.find_iter(&prose).map(|word| format!("{path}: `{}` is not in the vocabulary", word.as_str())).collect()
}

/// The help and the messages of a file, and its names.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    if is_test(path) {
        return Vec::new();
    }
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let line = |at: usize| format!("{path}:{}", text[..at].matches('\n').count() + 1);
    let mut found = Vec::new();
    for call in CALL.find_iter(text) {
        let literals = LITERAL.find_iter(arguments(&text[call.end() - 1..]));
        found.extend(literals.flat_map(|literal| matches(&WORD, &line(call.start()), literal.as_str())));
    }
    for derive in HELP.captures_iter(text) {
        let (at, end) = (derive[0].len(), format!("\n{}}}", &derive[1]));
        let begin = derive.get(0).map_or(0, |whole| whole.start());
        let item = text[begin..].split(&end).next().unwrap_or_default();
        let docs = item[at..].lines().filter_map(|doc| doc.trim().strip_prefix("/// "));
        found.extend(docs.flat_map(|doc| matches(&WORD, &line(begin), doc)));
    }
    let names = COMMENT.replace_all(text, "");
    let names = LITERAL.replace_all(&names, "");
    let segments = SEGMENT.find_iter(&names).map(|segment| segment.as_str().to_lowercase());
    let named = segments.filter(|segment| NAMES.contains(&segment.as_str()));
    found.extend(named.map(|segment| format!("{path}: a name has the segment `{segment}`")));
    found
}

#[test]
fn console_and_pages_use_the_vocabulary() {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).expect("a file");
    let templates = fs::read_dir(Path::new(ROOT).join(TEMPLATES)).expect("a folder").map(|entry| {
        let name = entry.expect("readable").file_name();
        format!("{TEMPLATES}/{}", name.to_string_lossy())
    });
    let templates: Vec<String> = templates.filter(|path| path.ends_with(".html")).collect();
    assert!(templates.len() > 10, "only {} templates were found", templates.len());
    let shown = templates.iter().flat_map(|path| matches(&WORD, path, &TAG.replace_all(&read(path), "")));
    let pages = prose::pages().into_iter().filter(|path| path != COLUMN);
    let found: Vec<String> = shown.chain(pages.flat_map(|path| matches(&PHRASE, &path, &read(&path)))).collect();
    assert!(found.is_empty(), "{} violations\n{}", found.len(), found.join("\n"));
}

#[test]
fn words_outside_of_the_vocabulary_are_found() {
    let text = "fn f() {\n    tracing::warn!(told, \"a \\\"caller\\\" (one) was told of {said} `seal`\");\n}\n\
                /// Told\n#[derive(Debug, Args)]\nstruct A {\n    /// Who asks\n    a: u8,\n}\nfn said() {}\n\
                struct LosersList;\n// losers\n";
    let found = check("src/a.rs", text);
    let expected = [
        "src/a.rs:2: `told` is not in the vocabulary",
        "src/a.rs:5: `Who asks` is not in the vocabulary",
        "src/a.rs: a name has the segment `losers`",
    ];
    assert_eq!(found, expected);
    assert_eq!(check("src/tests.rs", text), Vec::<String>::new());
    assert_eq!(matches(&PHRASE, "a", "It says who asks; `held against`").len(), 1);
}
