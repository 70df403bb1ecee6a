//! Rendering of a call's arguments: each on a line of its own, long ones folded; and the changes since an earlier call.

use std::{collections::BTreeMap, fmt::Write as _};

use imara_diff::{Algorithm, Diff, InternedInput};

use super::filters::{escape_text, group_thousands};
use callgate_core::domain::json::{self, Json};

/// Characters of a value that are shown without being unfolded.
const SHORT: usize = 240;
/// Bytes of arguments that one page shows; the rest has a page of its own, with a link to it.
pub(super) const SHOWN_BYTES: usize = 20_000;
/// Members that are shown without being unfolded.
const MEMBERS: usize = 40;
/// Characters up to which it is shown which words of a text are other.
const WORDS: usize = 4_000;

/// Arguments as a list in HTML, and true when all of them are in it. Text that is no JSON stands as it is.
pub(super) fn tree(text: &str) -> (String, bool) {
    let mut html = String::new();
    if text.len() > SHOWN_BYTES {
        let beginning = beginning(text, SHOWN_BYTES);
        let _ = write!(html, "<pre>{}</pre>", escape_text(beginning));
        return (html, false);
    }
    match json::parse(text) {
        Ok(Json::Object(members)) if members.is_empty() => html.push_str("<p>No arguments.</p>"),
        Ok(read) => value(&mut html, &read),
        Err(_) => {
            let _ = write!(html, "<pre>{}</pre>", escape_text(text));
        }
    }
    (html, true)
}

/// The first bytes of a text, by whole characters.
fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn value(html: &mut String, json: &Json) {
    match json {
        Json::Object(members) if !members.is_empty() => {
            let members: Vec<_> = members.iter().map(|(key, value)| (escape_text(key), value)).collect();
            list(html, &members);
        }
        Json::Array(entries) if !entries.is_empty() => {
            let entries: Vec<_> = entries.iter().enumerate().map(|(at, value)| (format!("[{at}]"), value)).collect();
            list(html, &entries);
        }
        Json::String(text) => leaf(html, &format!("\"{text}\""), text.contains('\n')),
        leaf_of => leaf(html, &leaf_of.canonical(), false),
    }
}

fn list(html: &mut String, members: &[(String, &Json)]) {
    let folded = members.len() > MEMBERS;
    if folded {
        let _ = write!(html, "<details><summary>{} entries</summary>", group_thousands(members.len() as u64));
    }
    html.push_str("<ul class=\"tree\">");
    for (key, one) in members {
        let _ = write!(html, "<li><span class=\"key\">{key}</span> ");
        value(html, one);
        html.push_str("</li>");
    }
    html.push_str("</ul>");
    if folded {
        html.push_str("</details>");
    }
}

fn leaf(html: &mut String, text: &str, in_lines: bool) {
    let count = text.chars().count();
    if count > SHORT {
        let first: String = text.chars().take(80).collect();
        let count = group_thousands(count as u64);
        let _ = write!(
            html,
            "<details><summary><code>{}…</code> <span class=\"muted\">{count} characters</span></summary>\
             <pre>{}</pre></details>",
            escape_text(&first),
            escape_text(text)
        );
    } else if in_lines {
        let _ = write!(html, "<pre>{}</pre>", escape_text(text));
    } else {
        let _ = write!(html, "<code>{}</code>", escape_text(text));
    }
}

/// The beginning of arguments in one line, and how many characters are left out.
pub(super) fn first_line(text: &str, max: usize) -> (String, usize) {
    let count = text.chars().count();
    (text.chars().take(max).collect(), count.saturating_sub(max))
}

/// One argument of two calls that is not the same in both.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArgumentChange {
    /// Its path: `order.items[0]`.
    pub(super) path: String,
    /// Old and new value, as HTML with `del` and `ins`.
    pub(super) html: String,
}

/// Changed arguments, and the count of equal ones; none where either text cannot be read.
pub(super) fn difference(was: &str, is: &str) -> Option<(Vec<ArgumentChange>, usize)> {
    let flat = |text: &str| {
        let mut leaves = BTreeMap::new();
        if text.len() <= SHOWN_BYTES {
            flatten(&mut leaves, String::new(), &json::parse(text).ok()?);
            return Some(leaves);
        }
        None
    };
    let (was, is) = (flat(was)?, flat(is)?);
    let mut others = Vec::new();
    let paths: std::collections::BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let all = paths.len();
    for path in paths {
        let html = match (was.get(path), is.get(path)) {
            (Some(was), Some(is)) if was == is => continue,
            (Some(was), Some(is)) => diff_words(was, is),
            (was, is) => {
                let gone = was.map(|was| format!("<del>{}</del>", escape_text(was)));
                let new = is.map(|is| format!("<ins>{}</ins>", escape_text(is)));
                gone.or(new).unwrap_or_default()
            }
        };
        let path = if path.is_empty() { "(all)".to_owned() } else { path.clone() };
        others.push(ArgumentChange { path, html });
    }
    let same = all - others.len();
    Some((others, same))
}

/// A text that is other: word by word where that is readable.
pub(super) fn diff_words(was: &str, is: &str) -> String {
    let is_long = |text: &str| (60..WORDS).contains(&text.len());
    if !(is_long(was) && is_long(is)) {
        return format!("<del>{}</del> <ins>{}</ins>", escape_text(was), escape_text(is));
    }
    let (old, new) = (split_words(was), split_words(is));
    let mut input = InternedInput::default();
    input.update_before(old.iter().copied());
    input.update_after(new.iter().copied());
    let (mut html, mut at) = (String::new(), 0);
    for hunk in Diff::compute(Algorithm::Myers, &input).hunks() {
        let (before, after) = (hunk.before.start as usize..hunk.before.end as usize, hunk.after);
        html.extend(old[at..before.start].iter().map(|word| escape_text(word)));
        html.extend(old[before.clone()].iter().map(|word| format!("<del>{}</del>", escape_text(word))));
        html.extend(
            new[after.start as usize..after.end as usize]
                .iter()
                .map(|word| format!("<ins>{}</ins>", escape_text(word))),
        );
        at = before.end;
    }
    html.extend(old[at..].iter().map(|word| escape_text(word)));
    html
}

/// Words and the white space between them.
fn split_words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| c.is_whitespace() != first.is_whitespace()).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        words.push(word);
        rest = behind;
    }
    words
}

fn flatten(leaves: &mut BTreeMap<String, String>, path: String, json: &Json) {
    match json {
        Json::Object(members) if !members.is_empty() => {
            for (key, value) in members {
                flatten(leaves, below(&path, key), value);
            }
        }
        Json::Array(entries) if !entries.is_empty() => {
            for (at, value) in entries.iter().enumerate() {
                flatten(leaves, format!("{path}[{at}]"), value);
            }
        }
        leaf => {
            leaves.insert(path, leaf.canonical());
        }
    }
}

/// The place of a key. No two places have one name, or one argument could hide the change of another: a key that is not
/// plainly one stands in brackets, as in JSON.
fn below(path: &str, key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|char| char.is_alphanumeric() || matches!(char, '_' | '-'));
    match (is_plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", Json::String(key.to_owned()).canonical()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_stands_on_its_line_and_nothing_is_cut() {
        let (html, is_whole) = tree(r#"{"b":[1,{"c":null}],"a":"<i>\u202e"}"#);
        assert!(is_whole);
        assert_eq!(html.matches("<li>").count(), 5, "{html}");
        assert!(html.contains("&lt;i&gt;<mark class=\"unseen\">U+202E</mark>"), "{html}");
        let long = "x".repeat(5_000);
        let (html, _) = tree(&format!("{{\"text\":\"{long}\"}}"));
        assert!(html.contains(&long) && html.contains("5,002 characters"), "all of it is there, folded");
        assert_eq!(tree("{}").0, "<p>No arguments.</p>");
        assert_eq!(tree("no <json>").0, "<pre>no &lt;json&gt;</pre>");
        let (html, is_whole) = tree(&format!("{{\"text\":\"{}\"}}", "é".repeat(20_000)));
        assert!(!is_whole && html.len() < 25_000);
    }

    #[test]
    fn difference_is_shown_by_its_path() {
        let told = difference(r#"{"to":"a","n":1,"gone":true}"#, r#"{"to":"b","n":1,"new":[2]}"#);
        let (others, same) = told.expect("both are read");
        let others: Vec<_> = others.iter().map(|other| (other.path.as_str(), other.html.as_str())).collect();
        let expected = [
            ("gone", "<del>true</del>"),
            ("new[0]", "<ins>2</ins>"),
            ("to", "<del>&quot;a&quot;</del> <ins>&quot;b&quot;</ins>"),
        ];
        assert_eq!((others.as_slice(), same), (expected.as_slice(), 1));
        assert_eq!(difference("{}", "no json"), None);
        for (was, is) in [
            (r#"{"order":{"to":"a"},"n":1}"#, r#"{"order":{"to":"b"},"order.to":"a","n":1}"#),
            (r#"{"items":["a"]}"#, r#"{"items":["b"],"items[0]":"a"}"#),
            (r#"{"to":"a"}"#, r#"{"":{"to":"a"},"to":"b"}"#),
            (r#"{"a":["x"]}"#, r#"{"a":{"0":"x"}}"#),
        ] {
            let (others, _) = difference(was, is).expect("both are read");
            assert_eq!(others.len(), 2, "nothing hides a change: {others:?}");
        }
        let was = format!("{{\"text\":\"{} the old <end>\"}}", "word ".repeat(20));
        let (others, _) = difference(&was, &was.replace("old", "new")).expect("both are read");
        assert!(others[0].html.contains("the <del>old</del><ins>new</ins>"), "{:?}", others[0]);
    }
}
