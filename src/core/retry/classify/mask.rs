//! Error signatures: the text of an error without its variable parts.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::reduce::readable;

const SIGNATURE_CHARS: usize = 200;

/// Maximum length of the masked input: masking shortens a text to a tenth at most, so the rest cannot reach the
/// signature.
const MASKED_CHARS: usize = 2_000;

/// The text of an error with its variable parts replaced, for equality: `<time>`, `<uuid>`, `<hex>`, `<id>` for mixed
/// letters and digits, `<n>` for numbers and durations, `<v>` for quoted values, `<email>`, and URLs without their
/// query. One line of at most 200 characters.
#[must_use]
pub fn error_signature(message: &str) -> String {
    let readable: String = readable(message).chars().take(MASKED_CHARS).collect();
    mask_text(&readable).chars().take(SIGNATURE_CHARS).collect()
}

// The first alternative that fits at a place wins, so the longer shapes come first.
#[rustfmt::skip]
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        r#"(?P<url>\b[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>)\]}|]+)"#,
        r"(?P<email>[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)",
        r"(?P<uuid>\b[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b)",
        concat!(
            r"(?P<time>\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?\b",
            r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\b",
            r"|\b\d{1,2}/\d{1,2}/\d{2,4}\b|\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?\b)",
        ),
        // A JSON body describes the error in a few fields, whose words stay.
        concat!(
            r#"(?P<said>["'](?P<key>type|code|status|reason|message|msg|error|error_type|detail|title)["']"#,
            r#"\s*:\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'))"#,
        ),
        r#"(?P<name>["'][A-Za-z_][\w.-]*["']\s*:)"#,
        r#"(?P<quoted>"(?:[^"\\]|\\.)*"|`[^`]*`|“[^”]*”)"#,
        // An apostrophe opens a quotation only where no word precedes it.
        r"(?P<apostrophe>(?P<lead>^|[\s(\[{=:,])'(?:[^'\\]|\\.)*')",
        r"(?P<hex>\b0[xX][0-9A-Fa-f]+\b|\b(?:[0-9A-Fa-f]{2,}:){2,}[0-9A-Fa-f]{2,}\b)",
        r"(?P<span>\b(?:\d+(?:\.\d+)?(?:ms|us|µs|ns|s|m|h|d))+\b)",
        // A word without a digit stays as it is, and need not be found.
        r"(?P<token>[A-Za-z]*[0-9][0-9A-Za-z]*)",
    ];
    compile_pattern(&shapes.join("|"))
});

/// Numbers that were masked in parts, to be merged: `127.0.0.1`, `1,234.56`, `10:15`.
static NUMBERS: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"<n>(?:[.,:]<n>)+"));

static DIGITS: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"\d+"));

fn compile_pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is fixed and tested")
}

fn mask_text(text: &str) -> String {
    let out = VARIABLE.replace_all(text, placeholder);
    NUMBERS.replace_all(&out, "<n>").into_owned()
}

fn placeholder(found: &Captures<'_>) -> String {
    let of = |name: &str| found.name(name).map(|part| part.as_str());
    if let Some(url) = of("url") {
        return masked_url(url);
    }
    if of("said").is_some() {
        let value = of("double").or_else(|| of("single")).unwrap_or_default();
        return format!("\"{}\": \"{}\"", of("key").unwrap_or_default(), mask_text(value));
    }
    if let Some(token) = of("token") {
        return masked_token(token);
    }
    if of("apostrophe").is_some() {
        return format!("{}'<v>'", of("lead").unwrap_or_default());
    }
    for (group, replacement) in [
        ("email", "<email>"),
        ("uuid", "<uuid>"),
        ("time", "<time>"),
        ("hex", "<hex>"),
        ("span", "<n>"),
        ("quoted", "'<v>'"),
    ] {
        if of(group).is_some() {
            return replacement.to_owned();
        }
    }
    // The rest is the name of a field.
    found.get(0).map_or_else(String::new, |all| all.as_str().to_owned())
}

/// Scheme, host and the words of the path.
fn masked_url(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (place, query) = url.split_at(end);
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let parts: Vec<String> = rest.split('/').map(mask_text).collect();
    let query = if query.is_empty() { "" } else { "?<query>" };
    format!("{scheme}://{}{query}", parts.join("/"))
}

/// A run of letters and digits: an id, a number, or a word whose digits vary.
fn masked_token(token: &str) -> String {
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    let capitals = token.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    if digits == 0 {
        token.to_owned()
    } else if digits == token.len() {
        "<n>".to_owned()
    } else if token.len() >= 8 && token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        "<hex>".to_owned()
    } else if (capitals && token.len() >= 4) || (digits >= 2 && token.len() >= 12) {
        "<id>".to_owned()
    } else {
        DIGITS.replace_all(token, "<n>").into_owned()
    }
}
