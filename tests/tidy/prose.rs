//! Plain sentences: bounds on the length of those of the pages, and no heading comment or sentence of a page that
//! begins with an interrogative but asks nothing. docs/glossary.md#rules-for-prose holds the rules.

use std::{fs, path::Path, sync::LazyLock};

use regex::Regex;

use super::ROOT;

/// Words of the longest sentence.
const LONGEST: usize = 40;
/// Words of the 95th percentile of a page's sentences.
const LONG: usize = 30;
/// Words of a page's median sentence.
const MEDIAN: usize = 18;
/// Pages outside of `docs`, without their ending.
const PAGES: [&str; 9] = [
    "README",
    "CONTRIBUTING",
    "SECURITY",
    "CHANGELOG",
    "migrations/README",
    "clients/python/README",
    "clients/typescript/README",
    "clients/go/README",
    "deploy/packages/README",
];

static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`+[^`]+`+").expect("a pattern"));
static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"!?\[[^\]]*\]\([^)]*\)|https?://\S+").expect("a pattern"));
static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)<!--.*?-->").expect("a pattern"));
static ITEM: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(?:[-*+]|\d+[.)])\s+(.*)$").expect("a pattern"));
static END: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"[.!?]["')\]]*\s+"#).expect("a pattern"));
static INTERROGATIVE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?:What|Who|Whose|Whom|Whatever|Whoever)\b").expect("a pattern"));
static QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:What|Who|Whose|Whom|Which|Whether|When|Where|Why|How|Whatever|Whoever)\b").expect("a pattern")
});

/// The sentences of a page of Markdown with the line that their block begins at. Code and links are one word; a list
/// item and a table cell are sentences of their own.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let text = COMMENT.replace_all(text, |found: &regex::Captures<'_>| "\n".repeat(found[0].matches('\n').count()));
    let (mut blocks, mut open, mut is_code) = (Vec::<(usize, String)>::new(), false, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim().trim_start_matches("> ").trim();
        if line.starts_with("```") {
            (is_code, open) = (!is_code, false);
        } else if is_code || line.is_empty() || line.starts_with('#') {
            open = false;
        } else if let Some(row) = line.strip_prefix('|') {
            let row = CODE.replace_all(row, "CODE");
            blocks.extend(row.split('|').map(|cell| (at + 1, cell.trim().to_owned())));
            open = false;
        } else if let Some(item) = ITEM.captures(line) {
            blocks.push((at + 1, item[1].to_owned()));
            open = true;
        } else if open && let Some((_, block)) = blocks.last_mut() {
            block.push(' ');
            block.push_str(line);
        } else {
            blocks.push((at + 1, line.to_owned()));
            open = true;
        }
    }
    blocks.into_iter().flat_map(|(at, block)| split(&block).into_iter().map(move |one| (at, one))).collect()
}

fn split(block: &str) -> Vec<String> {
    let block = CODE.replace_all(block, "CODE");
    let block = LINK.replace_all(&block, "LINK").replace(['*', '_'], "");
    let begins = |rest: &str| rest.starts_with(|first: char| first.is_uppercase() || "0123456789\"'([".contains(first));
    let ends = END.find_iter(&block).map(|end| end.end()).filter(|end| begins(&block[*end..]));
    let (mut from, mut found) = (0, Vec::new());
    for end in ends.chain([block.len()]) {
        found.push(block[from..end].trim().to_owned());
        from = end;
    }
    found.retain(|one| one.contains(char::is_alphanumeric));
    found
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().count()
}

fn check_page(path: &str, text: &str) -> Vec<String> {
    let sentences = sentences(text);
    let mut lengths: Vec<usize> = sentences.iter().map(|(_, sentence)| words(sentence)).collect();
    lengths.sort_unstable();
    let mut found: Vec<String> = sentences
        .iter()
        .flat_map(|(line, sentence)| {
            let asks = INTERROGATIVE.is_match(sentence) && !sentence.ends_with('?');
            let long = (words(sentence) > LONGEST).then(|| format!("a sentence of {} words", words(sentence)));
            let asks = asks.then(|| "a sentence begins with an interrogative and asks nothing".to_owned());
            long.into_iter().chain(asks).map(move |problem| format!("{path}:{line}: {problem}: {sentence}"))
        })
        .collect();
    for (percentile, most) in [(50, MEDIAN), (95, LONG)] {
        match lengths.get(lengths.len() * percentile / 100) {
            Some(length) if *length > most => {
                found.push(format!("{path}: the {percentile}th percentile has {length} words; {most} are enough"));
            }
            _ => {}
        }
    }
    found
}

/// The first line of a module's documentation names what it holds.
pub(crate) fn check_heading(text: &str) -> Option<(usize, String)> {
    let heading = text.lines().next()?.strip_prefix("//! ")?;
    QUESTION.is_match(heading).then(|| (1, format!("the heading begins with an interrogative: {heading}")))
}

/// The pages of `docs` and [`PAGES`].
pub(crate) fn pages() -> Vec<String> {
    let pages = fs::read_dir(Path::new(ROOT).join("docs")).expect("a folder").filter_map(|entry| {
        let name = entry.expect("readable").file_name().to_string_lossy().into_owned();
        name.ends_with(".md").then(|| format!("docs/{name}"))
    });
    let pages: Vec<String> = pages.chain(PAGES.map(|page| format!("{page}.md"))).collect();
    assert!(pages.len() > 20, "only {} pages were found", pages.len());
    pages
}

#[test]
fn pages_have_plain_sentences() {
    let pages = pages();
    let read = |page: &str| fs::read_to_string(Path::new(ROOT).join(page)).expect("a page");
    let found: Vec<String> = pages.iter().flat_map(|page| check_page(page, &read(page))).collect();
    assert!(found.is_empty(), "{} violations\n{}", found.len(), found.join("\n"));
}

#[test]
fn long_and_asking_sentences_are_found() {
    let long = format!("It {}ends.\n\nShort one. Whatever it is, it stays. What is it?\n", "goes on and ".repeat(14));
    let found = check_page("a", &format!("# Whose\n\n{long}\n- a list; with `code of many words` and [a link](b)\n"));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("a:3: a sentence of 44 words"), "{found:?}");
    assert!(found[1].contains("a:5: a sentence begins with an interrogative"), "{found:?}");
    assert!(found[2].starts_with("a: the 95th percentile has 44 words"), "{found:?}");
    let cells = sentences("| one two | `a|b` three |\n|---|---|\n| four. Five |\n");
    assert_eq!(
        cells.iter().map(|(_, one)| one.as_str()).collect::<Vec<_>>(),
        ["one two", "CODE three", "four.", "Five"]
    );
    assert!(check_heading("//! Whose turn it is\n").is_some());
    assert!(check_heading("//! Whole turns of tenants\n").is_none());
}
