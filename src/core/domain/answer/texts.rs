//! What a result says in three forms, each further from the letter: without its volatile parts, without what names or
//! counts an occurrence, and without the numbers of its texts.

use std::borrow::Cow;

use super::{READ_BYTES_MAX, eight};
use crate::domain::{
    json::{self, Json},
    mask::{self, MARK},
};

/// Names of a result that are kept to tell the model, and their longest, in characters.
const NAMED_MAX: usize = 4;
const NAME_CHARS_MAX: usize = 48;
/// Texts in texts that are read as JSON: what a protocol wraps, and what that wraps.
const WRAPPED_MAX: usize = 2;

/// How well a name serves the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Id,
    Token,
    Address,
}

#[derive(Debug, Default)]
pub(super) struct Names(Vec<(Rank, String)>);

impl Names {
    fn push(&mut self, name: &str, rank: Rank) {
        self.0.push((rank, name.to_owned()));
    }

    /// One hash of all of them, whatever their order, and the few that serve best.
    pub(super) fn close(mut self) -> (Option<u64>, Vec<String>) {
        self.0.sort();
        self.0.dedup();
        let all: Vec<&str> = self.0.iter().map(|(_, name)| name.as_str()).collect();
        let hash = (!all.is_empty()).then(|| eight(&all.join("\n")));
        let is_told = |name: &&String| name.chars().count() <= NAME_CHARS_MAX && !name.contains(char::is_control);
        let mut told: Vec<_> = self.0.iter().map(|(_, name)| name).filter(is_told).take(NAMED_MAX).cloned().collect();
        // They stay in memory with each call.
        told.shrink_to_fit();
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
    let mut words = key.rsplit('_');
    let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match (before, last) {
        ("request" | "trace" | "correlation" | "span" | "process", "id")
        | (_, "nonce" | "pid" | "ppid" | "elapsed" | "took" | "timestamp")
        | ("elapsed" | "duration" | "took" | "latency" | "runtime", "ms")
        | ("elapsed" | "duration", "seconds")
        | ("elapsed", "s")
        | ("server", "time") => Label::Volatile,
        (_, "id" | "ids" | "uuid" | "guid" | "number" | "sha") => Label::Name(Rank::Id),
        (_, "url" | "href") => Label::Name(Rank::Address),
        (_, "etag" | "cursor" | "at" | "duration" | "latency") | ("page", "token") => Label::Counter,
        _ => Label::Plain,
    }
}

/// `createdAt`, `created-at` and `Created_At` are one key.
pub(super) fn snake(key: &str) -> Cow<'_, str> {
    if !key.bytes().any(|b| b.is_ascii_uppercase() || b == b'-') {
        return Cow::Borrowed(key);
    }
    let mut out = String::with_capacity(key.len() + 4);
    let mut after_small = false;
    for c in key.chars() {
        if c.is_ascii_uppercase() && after_small {
            out.push('_');
        }
        after_small = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
    }
    Cow::Owned(out)
}

/// A result in canonical form, three times, written in one walk.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// Without its volatile parts.
    pub(super) quiet: String,
    /// Nor what names and counts an occurrence.
    pub(super) shape: String,
    /// Nor the bare numbers of its texts.
    pub(super) numberless: String,
}

impl Texts {
    /// Of a text that is no document.
    pub(super) fn plain(text: &str, names: &mut Names) -> Self {
        let mut push = |name: &str| names.push(name, Rank::Token);
        let quiet = mask::volatile(text, &mut push).into_owned();
        let is_long = text.len() > READ_BYTES_MAX;
        let shape = if is_long { quiet.clone() } else { mask::names(&quiet, &mut push).into_owned() };
        Self { numberless: mask::numbers(&shape).into_owned(), shape, quiet }
    }

    /// Of a document.
    pub(super) fn document(value: &Json, names: &mut Names) -> Self {
        let mut texts = Self::default();
        texts.value(value, Label::Plain, Label::Plain, 0, names);
        texts
    }

    fn all(&mut self, text: &str) {
        [&mut self.quiet, &mut self.shape, &mut self.numberless].into_iter().for_each(|out| out.push_str(text));
    }

    /// Writes a value that stands under a key of that label. `shaped` is the label that its shape goes by: what is
    /// wrapped in a text stands under no key there. UUIDs and long hexadecimal ids are told to `names`.
    fn value(&mut self, value: &Json, label: Label, shaped: Label, wrapped: usize, names: &mut Names) {
        match value {
            Json::Number(_) | Json::String(_) if label == Label::Volatile => self.leaf(MARK, true, shaped, names),
            Json::String(text) => match unwrapped(text, wrapped) {
                // Not the same as the document by itself.
                Some(inner) => self.members([(MARK, &inner)].into_iter(), names, |texts, _, inner, names| {
                    texts.value(inner, label, Label::Plain, wrapped + 1, names);
                }),
                None => {
                    let named = matches!(label, Label::Plain | Label::Name(_));
                    let mut push = |name: &str| {
                        if named {
                            names.push(name, Rank::Token)
                        }
                    };
                    let quiet = mask::volatile(text, &mut push);
                    self.leaf(&quiet, true, shaped, names);
                }
            },
            Json::Number(text) => self.leaf(text, false, shaped, names),
            Json::Array(items) => {
                self.all("[");
                for (i, item) in items.iter().enumerate() {
                    self.all(if i > 0 { "," } else { "" });
                    self.value(item, label, shaped, wrapped, names);
                }
                self.all("]");
            }
            Json::Object(members) => {
                let members = members.iter().map(|(key, value)| (key.as_str(), value));
                self.members(members, names, |texts, key, value, names| {
                    let label = self::label(key);
                    texts.value(value, label, label, wrapped, names);
                });
            }
            Json::Null => self.all("null"),
            Json::Bool(value) => self.all(if *value { "true" } else { "false" }),
        }
    }

    fn members<'j>(
        &mut self,
        members: impl Iterator<Item = (&'j str, &'j Json)>,
        names: &mut Names,
        write: impl Fn(&mut Self, &str, &Json, &mut Names),
    ) {
        self.all("{");
        for (i, (key, value)) in members.enumerate() {
            self.all(if i > 0 { "," } else { "" });
            [&mut self.quiet, &mut self.shape, &mut self.numberless].into_iter().for_each(|out| json::quote(key, out));
            self.all(":");
            write(self, key, value, names);
        }
        self.all("}");
    }

    /// Writes a number or a text whose volatile parts are masked.
    fn leaf(&mut self, quiet: &str, is_text: bool, label: Label, names: &mut Names) {
        let masked = match label {
            Label::Name(rank) => {
                // What was volatile in it was told before.
                if !quiet.contains(MARK) {
                    names.push(quiet, rank);
                }
                true
            }
            Label::Counter => true,
            Label::Volatile | Label::Plain => false,
        };
        if !is_text {
            self.quiet.push_str(quiet);
        } else {
            json::quote(quiet, &mut self.quiet);
        }
        if !masked && !is_text {
            [&mut self.shape, &mut self.numberless].into_iter().for_each(|out| out.push_str(quiet));
            return;
        }
        let mut push = |name: &str| names.push(name, Rank::Token);
        let shape = if masked { Cow::Borrowed(MARK) } else { mask::names(quiet, &mut push) };
        json::quote(&shape, &mut self.shape);
        json::quote(&mask::numbers(&shape), &mut self.numberless);
    }
}

/// A document that stands in a text, as MCP and others wrap theirs.
pub(super) fn unwrapped(text: &str, wrapped: usize) -> Option<Json> {
    let text = text.trim();
    let looks_like_one = wrapped < WRAPPED_MAX && (text.starts_with('{') || text.starts_with('['));
    let value = looks_like_one.then(|| json::parse(text).ok()).flatten()?;
    matches!(value, Json::Object(_) | Json::Array(_)).then_some(value)
}
