//! Reduction of a tool's error output to one readable line.

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

use crate::domain::json::{self, Json};

const LINE_CHARS: usize = 300;

/// Maximum bytes that are read at either end of a longer message: the beginning names the error, or the end of a
/// traceback does.
const READ_BYTES: usize = 8 * 1024;

/// Maximum length of a quoted bad value, in characters; longer ones are in the arguments anyway.
const VALUE_CHARS: usize = 40;

/// `message` in one line of at most 300 characters: the exception of a Python traceback, a stack trace without its
/// frames, the title of an HTML page, the fields and complaints of a validation dump joined with "; ".
#[must_use]
pub fn one_line(message: &str) -> String {
    let line = readable(message);
    if line.chars().count() <= LINE_CHARS {
        return line;
    }
    line.chars().take(LINE_CHARS - 1).chain(['…']).collect()
}

/// [`one_line`] without a length limit.
pub(super) fn readable(message: &str) -> String {
    let ends = both_ends(message);
    let plain = ESCAPES.replace_all(&ends, "");
    let text = page(&plain).unwrap_or_else(|| join_lines(exception(&plain).unwrap_or(&plain)));
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `message`, or both ends of a very long one.
pub(super) fn both_ends(message: &str) -> Cow<'_, str> {
    if message.len() <= 2 * READ_BYTES {
        return Cow::Borrowed(message);
    }
    let head = message.floor_char_boundary(READ_BYTES);
    let tail = message.ceil_char_boundary(message.len() - READ_BYTES);
    Cow::Owned(format!("{}\n{}", &message[..head], &message[tail..]))
}

/// Maximum depth of the message in a JSON error.
const DEPTH_MAX: usize = 3;

/// The message of an error that is a JSON object; none for other texts, and without such a member.
#[must_use]
pub fn message_in_json(message: &str) -> Option<String> {
    let text = message.trim();
    if !text.starts_with('{') {
        return None;
    }
    json::parse(text).ok().and_then(|error| message_of(&error, 0))
}

fn message_of(error: &Json, depth: usize) -> Option<String> {
    let found = ["message", "error_message", "detail", "error_description", "title", "error", "errors"]
        .into_iter()
        .filter_map(|name| error.get(name));
    found.filter(|_| depth < DEPTH_MAX).find_map(|value| match value {
        Json::String(text) if !text.trim().is_empty() => Some(text.to_string()),
        Json::Object(_) => message_of(value, depth + 1),
        Json::Array(items) => match items.first()? {
            Json::String(text) => Some(text.to_string()),
            first => message_of(first, depth + 1),
        },
        _ => None,
    })
}

fn compile_pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is fixed and tested")
}

static ESCAPES: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"\x1b\[[0-9;?]*[A-Za-z]"));

// --- Python

const TRACEBACK: &str = "Traceback (most recent call last):";

/// The exception of the last traceback in `text`, with all its lines.
fn exception(text: &str) -> Option<&str> {
    let after = &text[text.rfind(TRACEBACK)? + TRACEBACK.len()..];
    let mut at = 0;
    for line in after.split_inclusive('\n') {
        if !line.trim().is_empty() && !line.starts_with([' ', '\t']) {
            return after.get(at..);
        }
        at += line.len();
    }
    // Cut or indented as a whole: its last line is the best there is.
    after.lines().rfind(|line| !line.trim().is_empty())
}

// --- HTML

static PAGE: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"(?i)<!doctype html|<html[\s>]"));
static PARTS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [r"(?is)<title[^>]*>(.*?)</title>", r"(?is)<h1[^>]*>(.*?)</h1>", r"(?is)<(?:p|pre)(?:\s[^>]*)?>(.*?)</(?:p|pre)>"]
        .map(compile_pattern)
});
// One by one: combined, an unclosed one would be searched to the end again for each of the others.
static UNSEEN: LazyLock<[Regex; 4]> = LazyLock::new(|| {
    [r"(?is)<script.*?</script>", r"(?is)<style.*?</style>", r"(?is)<head.*?</head>", r"(?s)<!--.*?-->"]
        .map(compile_pattern)
});
static TAG: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"(?s)<[^>]*>"));

/// Title, heading and first paragraph of an HTML page, after any text before it.
fn page(text: &str) -> Option<String> {
    let start = PAGE.find(text)?.start();
    let (before, html) = text.split_at_checked(start)?;
    let mut parts: Vec<String> = Vec::new();
    for found in PARTS.iter().filter_map(|part| part.captures(html)) {
        let part = strip_tags(found.get(1).map_or("", |inner| inner.as_str()));
        let known = parts.iter().any(|earlier| earlier.to_lowercase().contains(&part.to_lowercase()));
        if !part.is_empty() && !known {
            parts.push(part);
        }
    }
    if parts.is_empty() {
        let seen = UNSEEN.iter().fold(html.to_owned(), |html, part| part.replace_all(&html, " ").into_owned());
        parts.push(strip_tags(&seen));
    }
    Some(format!("{} {}", before.trim(), parts.join("; ")))
}

fn strip_tags(html: &str) -> String {
    let text = TAG.replace_all(html, " ").replace("&nbsp;", " ").replace("&lt;", "<").replace("&gt;", ">");
    let text = text.replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

// --- Stack traces and dumps of several lines

#[rustfmt::skip]
static FRAME: LazyLock<Regex> = LazyLock::new(|| {
    let frames = [
        // Java, JavaScript, .NET; the last may name a file behind the parentheses.
        r"^at (?:async |new )*\S+(?: \[as \S+\])?\s*\(.*\)(?: in .*)?$",
        r"^at (?:async )?\S+:\d+(?::\d+)?$",
        r"^\.\.\. \d+ (?:more|common frames omitted)$",
        // Ruby.
        r"^from \S+:\d+:in ",
        // Rust's hint, pydantic's link, rulers and carets.
        r"^note: run with `RUST_BACKTRACE",
        r"^For further information visit ",
        r"^[-=~^*_]+$",
    ];
    compile_pattern(&frames.join("|"))
});
static REST_IS_FRAMES: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"^(?:goroutine \d+ \[|stack backtrace:$)"));
static FIELD: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"^[\w.\[\]-]+$"));
static PYDANTIC: LazyLock<Regex> =
    LazyLock::new(|| compile_pattern(r"\s*\[type=(\w[\w.]*)(?:, input_value=(.*?))?(?:, input_type=\w+)?\]"));

fn join_lines(text: &str) -> String {
    let mut out = String::new();
    let mut field_waits = false;
    for raw in text.lines() {
        let line = raw.trim();
        if REST_IS_FRAMES.is_match(line) {
            break;
        }
        if line.is_empty() || FRAME.is_match(line) {
            continue;
        }
        let line = PYDANTIC.replace_all(line, bad_value);
        let indented = raw.starts_with([' ', '\t']);
        out.push_str(if field_waits && indented { ": " } else { line_separator(&out, &line) });
        out.push_str(&line);
        field_waits = !indented && FIELD.is_match(&line);
    }
    out
}

/// Separator of two lines: none after the punctuation of sentences, brackets and lists.
fn line_separator(before: &str, next: &str) -> &'static str {
    if before.is_empty() {
        ""
    } else if before.ends_with([':', ';', ',', '{', '[', '(', '.', '!', '?']) || next.starts_with(['}', ']', ')']) {
        " "
    } else {
        "; "
    }
}

/// Pydantic's remark, reduced to the refused value; a missing field shows the whole object, which is useless.
fn bad_value(found: &Captures<'_>) -> String {
    let kind = found.get(1).map_or("", |kind| kind.as_str());
    match found.get(2) {
        Some(value) if kind != "missing" && value.as_str().chars().count() <= VALUE_CHARS => {
            format!(" (got {})", value.as_str())
        }
        _ => String::new(),
    }
}
