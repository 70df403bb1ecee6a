//! What a successful result says, as far as recognising it again goes: its digest, and the marks that loop rules read.
//! Two results with one *shape* differ in nothing but the names and numbers of occurrences: the values under keys like
//! `id`, `*_id`, `number`, `url` or `*_at`, and tokens that look like one (docs/semantics.md#shape).

use sha2::{Digest as _, Sha256};

use super::{
    fingerprint::ResultDigest,
    json::{self, Json},
    mask::{self, MARK},
};

/// Results up to this size are read as JSON and have a shape; of larger ones the text with its volatile parts masked is
/// all that is known.
const READ_BYTES_MAX: usize = 256 << 10;
/// From this length on, in bytes, a result without a list says something.
const LONG_BYTES: usize = 65;
/// Names of a result that are kept to tell the model, and their longest, in characters.
const NAMED_MAX: usize = 4;
const NAME_CHARS_MAX: usize = 48;
/// Texts in texts that are read as JSON: what a protocol wraps, and what that wraps.
const WRAPPED_MAX: usize = 2;

/// How much a result says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Says {
    /// At most 64 bytes, without a list: `ok`, `sent`, nothing at all.
    Little,
    /// Lists, and all of them empty.
    NoMatches,
    /// More than 64 bytes, without a list.
    Much,
    /// Something is listed.
    Lists,
}

impl Says {
    /// Every member, in the order of its stored code.
    pub const ALL: [Self; 4] = [Self::Little, Self::NoMatches, Self::Much, Self::Lists];
}

/// What loop rules read of a successful result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// The result without its volatile parts and names; eight bytes of a hash.
    pub shape: u64,
    /// The same without the bare numbers of its texts.
    pub numberless: u64,
    /// What it names: the raw values under id-like keys, and id-like tokens. None: it names nothing.
    pub names: Option<u64>,
    /// A few of the names, for the model; empty where results are not stored in full.
    pub named: Vec<String>,
    /// How much it says.
    pub says: Says,
    /// It reports an unmistakable failure.
    pub failed: bool,
}

/// What is read of a successful result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// By which it is known again.
    pub digest: ResultDigest,
    /// For the loop rules.
    pub marks: Marks,
}

impl Answer {
    /// What a result says, after the `volatile` fields (JSON pointers, `*` for any) are gone.
    #[must_use]
    pub fn of(result: &str, volatile: &[String]) -> Self {
        let text = result.trim();
        let parsed = if text.len() <= READ_BYTES_MAX { json::parse(text).ok() } else { None };
        let mut names = Names::default();
        let (digest, shape, numberless) = match parsed.clone() {
            Some(mut value @ (Json::Object(_) | Json::Array(_))) => {
                volatile.iter().for_each(|pointer| value.remove(pointer));
                let quiet = quiet(value, "", 0, &mut names);
                let shape = shaped(quiet.clone(), "", &mut names);
                let numberless = each_text(shape.clone(), &|text| mask::numbers(text).into_owned());
                (quiet.canonical(), shape.canonical(), numberless.canonical())
            }
            _ => {
                let quiet = mask::volatile(text, &mut |name| names.push(name, Rank::Token)).into_owned();
                let shape = if text.len() > READ_BYTES_MAX {
                    quiet.clone()
                } else {
                    mask::names(&quiet, &mut |name| names.push(name, Rank::Token)).into_owned()
                };
                let numberless = mask::numbers(&shape).into_owned();
                (quiet, shape, numberless)
            }
        };
        let (says, failed) = said(text, parsed.as_ref());
        let (shape, numberless) = (eight(&shape), eight(&numberless));
        let (hash, named) = names.close();
        let marks = Marks { shape, numberless, names: hash, named, says, failed };
        Self { digest: ResultDigest::of_success(&digest), marks }
    }

    /// What is known of a result whose digest alone was reported.
    #[must_use]
    pub fn of_digest(digest: &str, bytes: Option<u64>) -> Self {
        let says = if bytes.is_none_or(|bytes| bytes >= LONG_BYTES as u64) { Says::Much } else { Says::Little };
        let shape = eight(digest);
        let marks = Marks { shape, numberless: shape, names: None, named: Vec::new(), says, failed: false };
        Self { digest: ResultDigest::of_success(digest), marks }
    }
}

/// The first eight bytes of SHA-256: enough to tell the results of one session apart.
fn eight(text: &str) -> u64 {
    Sha256::digest(text.as_bytes())[..8].iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// How well a name serves the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Id,
    Token,
    Address,
}

#[derive(Debug, Default)]
struct Names(Vec<(Rank, String)>);

impl Names {
    fn push(&mut self, name: &str, rank: Rank) {
        self.0.push((rank, name.to_owned()));
    }

    /// One hash of all of them, whatever their order, and the few that serve best.
    fn close(mut self) -> (Option<u64>, Vec<String>) {
        self.0.sort();
        self.0.dedup();
        let all: Vec<&str> = self.0.iter().map(|(_, name)| name.as_str()).collect();
        let hash = (!all.is_empty()).then(|| eight(&all.join("\n")));
        let is_told = |name: &&String| name.chars().count() <= NAME_CHARS_MAX && !name.contains(char::is_control);
        let told = self.0.iter().map(|(_, name)| name).filter(is_told).take(NAMED_MAX).cloned().collect();
        (hash, told)
    }
}

/// What a member's name says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    /// The value changes from one time to the next, and means nothing.
    Volatile,
    /// The value names an occurrence.
    Name(Rank),
    /// The value counts or times an occurrence.
    Counter,
    Plain,
}

fn label(key: &str) -> Label {
    let key = snake(key);
    let ends = |ends: &[&str]| ends.iter().any(|end| key == end[1..] || key.ends_with(end));
    if ends(&["_request_id", "_trace_id", "_correlation_id", "_span_id", "_nonce", "_pid", "_ppid", "_process_id"])
        || ends(&["_elapsed", "_elapsed_ms", "_elapsed_s", "_elapsed_seconds", "_duration_ms", "_duration_seconds"])
        || ends(&["_took", "_took_ms", "_latency_ms", "_runtime_ms", "_timestamp", "_server_time"])
    {
        return Label::Volatile;
    }
    if ends(&["_id", "_ids", "_uuid", "_guid", "_number", "_sha"]) {
        return Label::Name(Rank::Id);
    }
    if ends(&["_url", "_href"]) {
        return Label::Name(Rank::Address);
    }
    let counts = ends(&["_etag", "_cursor", "_at", "_duration", "_latency", "_page_token"]);
    if counts { Label::Counter } else { Label::Plain }
}

/// `createdAt`, `created-at` and `Created_At` are one key.
fn snake(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 4);
    let mut after_small = false;
    for c in key.chars() {
        if c.is_ascii_uppercase() && after_small {
            out.push('_');
        }
        after_small = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
    }
    out
}

/// The value without its volatile parts; UUIDs and long hexadecimal ids are told to `names`.
fn quiet(value: Json, key: &str, wrapped: usize, names: &mut Names) -> Json {
    match value {
        Json::Number(_) | Json::String(_) if label(key) == Label::Volatile => Json::String(MARK.to_owned()),
        Json::String(text) => match unwrapped(&text, wrapped) {
            // Not the same as the document by itself.
            Some(inner) => Json::Object(vec![(MARK.to_owned(), quiet(inner, key, wrapped + 1, names))]),
            None => {
                let named = matches!(label(key), Label::Plain | Label::Name(_));
                let mut push = |name: &str| {
                    if named {
                        names.push(name, Rank::Token)
                    }
                };
                Json::String(mask::volatile(&text, &mut push).into_owned())
            }
        },
        Json::Array(items) => Json::Array(items.into_iter().map(|item| quiet(item, key, wrapped, names)).collect()),
        Json::Object(members) => {
            Json::Object(members.into_iter().map(|(k, v)| (k.clone(), quiet(v, &k, wrapped, names))).collect())
        }
        other => other,
    }
}

/// The quiet value without what names and counts an occurrence.
fn shaped(value: Json, key: &str, names: &mut Names) -> Json {
    match (value, label(key)) {
        (Json::Number(text) | Json::String(text), Label::Name(rank)) => {
            // What was volatile in it was told before.
            if !text.contains(MARK) {
                names.push(&text, rank);
            }
            Json::String(MARK.to_owned())
        }
        (Json::Number(_) | Json::String(_), Label::Counter) => Json::String(MARK.to_owned()),
        (Json::String(text), _) => {
            Json::String(mask::names(&text, &mut |name| names.push(name, Rank::Token)).into_owned())
        }
        (Json::Array(items), _) => Json::Array(items.into_iter().map(|item| shaped(item, key, names)).collect()),
        (Json::Object(members), _) => {
            Json::Object(members.into_iter().map(|(k, v)| (k.clone(), shaped(v, &k, names))).collect())
        }
        (other, _) => other,
    }
}

fn each_text(value: Json, change: &dyn Fn(&str) -> String) -> Json {
    match value {
        Json::String(text) => Json::String(change(&text)),
        Json::Array(items) => Json::Array(items.into_iter().map(|item| each_text(item, change)).collect()),
        Json::Object(members) => {
            Json::Object(members.into_iter().map(|(key, value)| (key, each_text(value, change))).collect())
        }
        other => other,
    }
}

/// A document that stands in a text, as MCP and others wrap theirs.
fn unwrapped(text: &str, wrapped: usize) -> Option<Json> {
    let text = text.trim();
    let looks_like_one = wrapped < WRAPPED_MAX && (text.starts_with('{') || text.starts_with('['));
    let value = looks_like_one.then(|| json::parse(text).ok()).flatten()?;
    matches!(value, Json::Object(_) | Json::Array(_)).then_some(value)
}

/// How much a result says, and whether it reports a failure.
fn said(text: &str, value: Option<&Json>) -> (Says, bool) {
    let Some(value) = value else { return (by_length(text), exits_badly(text)) };
    let failed = reports_failure(value);
    if let Some(content) = mcp_texts(value) {
        let (says, inside) = match &content[..] {
            [one] => said(one.trim(), unwrapped(one, 0).as_ref()),
            _ => (by_length(&content.concat()), false),
        };
        return (says, failed || inside);
    }
    let says = match lists(value) {
        Some(true) => Says::Lists,
        Some(false) => Says::NoMatches,
        None => by_length(text),
    };
    (says, failed || matches!(value, Json::String(text) if exits_badly(text)))
}

fn by_length(text: &str) -> Says {
    if text.len() >= LONG_BYTES { Says::Much } else { Says::Little }
}

/// Some array somewhere is not empty; none when there is no array at all.
fn lists(value: &Json) -> Option<bool> {
    match value {
        Json::Array(items) => Some(!items.is_empty()),
        Json::Object(members) => members.iter().filter_map(|(_, value)| lists(value)).max(),
        Json::String(text) => unwrapped(text, 1).and_then(|inner| lists(&inner)),
        _ => None,
    }
}

/// The texts that an MCP result wraps.
fn mcp_texts(value: &Json) -> Option<Vec<&str>> {
    let Some(Json::Array(items)) = value.get("content") else { return None };
    let text = |item: &'_ Json| match (item.get("type"), item.get("text")) {
        (Some(Json::String(kind)), Some(Json::String(_))) => kind == "text",
        _ => false,
    };
    (!items.is_empty() && items.iter().all(text)).then(|| {
        let texts = items.iter().filter_map(|item| match item.get("text") {
            Some(Json::String(text)) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    })
}

/// `isError`, `status: failed`, `ok: false` with an error, or an exit code over 1 (1 is what `grep`, `diff` and tests
/// answer with when all went well), at the top.
fn reports_failure(value: &Json) -> bool {
    let Json::Object(members) = value else { return false };
    let has_error =
        members.iter().any(|(key, value)| key == "error" && !matches!(value, Json::Null | Json::Bool(false)));
    members.iter().any(|(key, value)| match (snake(key).as_str(), value) {
        ("is_error", Json::Bool(true)) => true,
        ("status", Json::String(status)) => matches!(&*status.to_ascii_lowercase(), "failed" | "failure" | "error"),
        ("ok" | "success", Json::Bool(false)) => has_error,
        ("exit_code" | "exit_status" | "return_code" | "returncode", Json::Number(code)) => {
            code.parse::<i64>().is_ok_and(|code| !(0..=1).contains(&code))
        }
        _ => false,
    })
}

/// The first or the last line says that a command ended with a code over 1.
fn exits_badly(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next();
    first.into_iter().chain(lines.next_back()).any(|line| {
        let line = line.to_ascii_lowercase();
        let after = ["exit code", "exit status", "exited with code", "exited with status"];
        let code = after.iter().find_map(|words| line.split_once(words).map(|(_, code)| code));
        let code = code.map(|code| code.trim_start_matches([' ', ':', '=']));
        let digits = code.map(|code| code.chars().take_while(char::is_ascii_digit).collect::<String>());
        digits.and_then(|digits| digits.parse::<u32>().ok()).is_some_and(|code| code > 1)
    })
}

#[cfg(test)]
#[path = "answer/tests.rs"]
mod tests;
