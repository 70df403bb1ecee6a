//! One walk over a result: the text of its digest, and the parts in which two answers to one call may differ and both
//! tell of something made (docs/semantics.md#receipts).

use super::{
    READ_BYTES_MAX, eight, mcp_texts,
    sentence::{self, NAME_MAX, Word},
    times::{time_of, timed},
    words::{Label, label, tells_of_making},
};
use crate::domain::{
    json::{self, Json},
    mask::{self, MARK},
    time::Timestamp,
};

/// Names and numbers of one result that are compared one by one; further ones count as words.
const PARTS_MAX: usize = 48;
/// Names of a result that are kept to tell the model, and their longest, in characters.
const NAMED_MAX: usize = 4;
const NAME_CHARS_MAX: usize = 48;
/// Texts in texts that are read as JSON: what a protocol wraps, and what that wraps.
const WRAPPED_MAX: usize = 2;
/// Lines of a text that is read as members and their values.
const LINES_MAX: usize = 60;
/// Longest name of a member in such a line, in bytes.
const KEY_MAX: usize = 40;
/// How near the time of a report a time of making is now, in milliseconds.
const NOW_MS: i64 = 60_000;
/// How near it a time belongs to the answer.
const ANSWERED_MS: i64 = 3_600_000;
/// How far ahead a time ends what was given: a lease, a lock, a quote.
const AHEAD_MS: std::ops::RangeInclusive<i64> = 5_000..=86_400_000;
/// Stand for a name and for a number.
const NAME: &str = "\u{2}";
const NUMBER: &str = "\u{3}";

/// A name, and the member under which it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Empty for a word of a text.
    pub member: String,
    /// The name.
    pub name: String,
}

/// A number, and whether it may be one that counts: no price, and no word of a longer value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// Its value.
    pub value: f64,
    /// It may have risen beside what differs.
    pub counts: bool,
}

/// What is read of a result.
#[derive(Debug)]
pub(super) struct Reading {
    now: Timestamp,
    /// The result without what belongs to the answer alone.
    pub(super) quiet: String,
    /// What stands outside lists and texts of several lines, with a mark for each name and number.
    frame: String,
    /// What stands inside them: parts of `quiet`.
    inside: Vec<(usize, usize)>,
    names: Vec<u64>,
    named: Vec<(bool, Named)>,
    numbers: Vec<Number>,
    pub(super) made_now: bool,
    pub(super) lapses: Option<u64>,
    /// Something was said beside what belongs to the answer alone.
    has_said: bool,
}

impl Reading {
    fn new(now: Timestamp) -> Self {
        let (quiet, frame) = (String::new(), String::new());
        let (inside, names, named, numbers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { now, quiet, frame, inside, names, named, numbers, made_now: false, lapses: None, has_said: false }
    }

    /// Of a text that is no document.
    pub(super) fn of_text(text: &str, now: Timestamp) -> Self {
        let mut reading = Self::new(now);
        if text.len() > READ_BYTES_MAX {
            reading.quiet.push_str(&mask::volatile(text));
            reading.has_said = true;
            reading.inside.push((0, reading.quiet.len()));
        } else {
            reading.text("", text, Label::Sentence);
        }
        reading
    }

    /// Of a document.
    pub(super) fn of_document(value: &Json, now: Timestamp) -> Self {
        let mut reading = Self::new(now);
        reading.value("", value, Label::Plain, 0);
        reading
    }

    /// The text by which the result is known again: that of a clock says nothing but the time, and so all of it counts.
    pub(super) fn known_by<'t>(&'t self, text: &'t str) -> &'t str {
        if self.has_said || self.quiet.is_empty() { &self.quiet } else { text }
    }

    pub(super) fn frame(&self) -> u64 {
        eight(&[&self.frame])
    }

    pub(super) fn inside(&self) -> u64 {
        let parts: Vec<&str> = self.inside.iter().map(|(from, to)| &self.quiet[*from..*to]).collect();
        eight(&parts)
    }

    /// Names and numbers outside lists, in their order, and the few names that serve the model best: ids first.
    pub(super) fn parts(mut self) -> (Box<[u64]>, Box<[Number]>, Vec<Named>) {
        self.named.sort_by_key(|(is_id, _)| !is_id);
        self.named.truncate(NAMED_MAX);
        let named = self.named.into_iter().map(|(_, named)| named).collect();
        (self.names.into(), self.numbers.into(), named)
    }

    fn both(&mut self, text: &str) {
        self.quiet.push_str(text);
        self.frame.push_str(text);
    }

    fn value(&mut self, key: &str, value: &Json, label: Label, wrapped: usize) {
        match value {
            Json::Null => self.both("null"),
            Json::Bool(value) => {
                self.has_said = true;
                self.both(if *value { "true" } else { "false" });
            }
            Json::Number(_) | Json::String(_) if label == Label::OfTheAnswer => self.both(MARK),
            Json::Number(text) => self.number(key, text, label),
            Json::String(text) => match unwrapped(text, wrapped) {
                // Not the same as the document by itself.
                Some(inner) => {
                    self.both(MARK);
                    self.value(key, &inner, label, wrapped + 1);
                }
                None => self.text(key, text, label),
            },
            Json::Array(items) => self.list(items, wrapped),
            Json::Object(members) => match mcp_texts(value) {
                Some(texts) => {
                    self.both(MARK);
                    for text in texts {
                        match unwrapped(text, wrapped) {
                            Some(inner) => self.value("", &inner, Label::Plain, wrapped + 1),
                            None => self.text("", text, Label::Sentence),
                        }
                    }
                    let beside = members.iter().filter(|(name, _)| name != "content");
                    beside.for_each(|(name, value)| self.member(name, value, wrapped));
                }
                None => {
                    self.both("{");
                    members.iter().for_each(|(name, value)| self.member(name, value, wrapped));
                    self.both("}");
                }
            },
        }
    }

    fn member(&mut self, name: &str, value: &Json, wrapped: usize) {
        let from = self.quiet.len();
        json::quote(name, &mut self.quiet);
        self.quiet.push(':');
        self.frame.push_str(&self.quiet[from..]);
        self.value(name, value, label(name), wrapped);
        self.both(",");
    }

    /// A list stands in the frame as one: what it holds is compared as a whole. Of one row that is an id and no more,
    /// as a database returns it, the id is a name.
    fn list(&mut self, items: &[Json], wrapped: usize) {
        if let [Json::Object(members)] = items
            && let [(name, value @ (Json::Number(_) | Json::String(_)))] = members.as_slice()
            && label(name) == Label::Identity
        {
            self.both("[");
            self.member(name, value, wrapped);
            self.both("]");
            return;
        }
        self.frame.push_str("[]");
        self.has_said = true;
        let from = self.quiet.len();
        self.quiet.push('[');
        items.iter().for_each(|item| self.quietly(item));
        self.quiet.push(']');
        self.inside.push((from, self.quiet.len()));
    }

    fn quietly(&mut self, value: &Json) {
        match value {
            Json::String(text) => json::quote(&mask::volatile(text), &mut self.quiet),
            Json::Array(items) => {
                self.quiet.push('[');
                items.iter().for_each(|item| self.quietly(item));
                self.quiet.push(']');
            }
            Json::Object(members) => {
                self.quiet.push('{');
                for (name, value) in members {
                    json::quote(name, &mut self.quiet);
                    self.quiet.push(':');
                    let is_leaf = matches!(value, Json::Number(_) | Json::String(_));
                    if is_leaf && label(name) == Label::OfTheAnswer {
                        self.quiet.push_str(MARK);
                    } else {
                        self.quietly(value);
                    }
                }
                self.quiet.push('}');
            }
            other => self.quiet.push_str(&other.canonical()),
        }
        self.quiet.push(',');
    }

    fn number(&mut self, key: &str, text: &str, label: Label) {
        let value: f64 = text.parse().unwrap_or(f64::NAN);
        let is_whole = text.bytes().all(|b| b.is_ascii_digit());
        let time = time_of(value).filter(|at| match label {
            Label::Time { .. } => true,
            Label::Plain => self.is_near(*at),
            _ => false,
        });
        if let Some(at) = time {
            self.time(text, at, label);
            return;
        }
        self.has_said = true;
        self.quiet.push_str(text);
        match label {
            Label::Identity | Label::Address => self.name(key, text, true),
            Label::Secret | Label::Beside => self.frame.push_str(MARK),
            Label::Lifetime(unit) => {
                let ends_in = value * unit as f64;
                if ends_in >= *AHEAD_MS.start() as f64 && ends_in <= *AHEAD_MS.end() as f64 {
                    self.lapses_at(self.now.plus_ms(ends_in as u64).as_millis());
                }
                self.frame.push_str(text);
            }
            _ if is_whole && text.len() >= 9 => self.name(key, text, false),
            _ => self.counted(Number { value, counts: label != Label::Amount }, text),
        }
    }

    /// A text under a key.
    fn text(&mut self, key: &str, text: &str, label: Label) {
        let trimmed = text.trim();
        if trimmed.contains('\n') && self.lines(trimmed) {
            return;
        }
        if let Some(at) = timed(trimmed, label) {
            self.time(trimmed, at, label);
            return;
        }
        let quiet = mask::volatile(text);
        let from = self.quiet.len();
        json::quote(&quiet, &mut self.quiet);
        self.has_said |= quiet.contains(|c: char| c.is_alphanumeric());
        let is_word = !quiet.is_empty() && quiet.len() <= NAME_MAX && !quiet.contains(char::is_whitespace);
        match label {
            Label::Secret | Label::Beside => self.frame.push_str(MARK),
            _ if trimmed.contains('\n') => {
                self.frame.push_str("[]");
                self.inside.push((from, self.quiet.len()));
            }
            Label::Identity if is_word => self.name(key, &quiet, true),
            Label::Address if is_word && !quiet.contains("://") => self.name(key, &quiet, false),
            _ => {
                self.made_now |= label == Label::Sentence && tells_of_making(&quiet);
                self.sentence(key, &quiet, label);
            }
        }
    }

    /// A text by its words. In a member that holds more than one word, a name is data (`part-17.csv`), and a number no
    /// counter.
    fn sentence(&mut self, key: &str, quiet: &str, label: Label) {
        let mut copied = 0;
        let is_free = matches!(label, Label::Sentence | Label::Identity | Label::Address);
        self.frame.push('"');
        sentence::words(quiet, |from, to, word| {
            self.frame.push_str(&quiet[copied..from]);
            copied = to;
            let is_whole = from == 0 && to == quiet.len() || quiet.starts_with("http") && to == quiet.len();
            match word {
                Word::Name(name) if is_free || is_whole => self.name(key, name, false),
                Word::Name(name) => self.frame.push_str(name),
                Word::Number(value) => {
                    let counts = label != Label::Amount && (is_free || is_whole);
                    self.counted(Number { value, counts }, &quiet[from..to]);
                }
                Word::Beside => self.frame.push_str(MARK),
            }
        });
        self.frame.push_str(&quiet[copied..]);
        self.frame.push('"');
    }

    /// `ID: evt_17` and the like, one a line; false where it is another text.
    fn lines(&mut self, text: &str) -> bool {
        let mut lines: Vec<(&str, &str)> = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let line = line.trim_start_matches(['-', '*', '•', ' ']);
            let (key, value) = line.split_once(':').unwrap_or(("", line));
            let key = key.trim_matches(['*', ' ']);
            let is_key = key.len() <= KEY_MAX
                && key.starts_with(|c: char| c.is_alphabetic())
                && key.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '/' | '(' | ')'))
                && value.starts_with(|c: char| c.is_whitespace() || c == '*');
            let (key, value) = if is_key { (key, value.trim_matches(['*', ' '])) } else { ("", line) };
            if lines.len() >= LINES_MAX || !key.is_empty() && lines.iter().any(|(known, _)| *known == key) {
                return false;
            }
            lines.push((key, value));
        }
        let sentences = lines.iter().filter(|(key, _)| key.is_empty()).count();
        if sentences > 1 && sentences * 2 >= lines.len() || lines.len() < 2 || sentences == lines.len() {
            return false;
        }
        for (key, value) in lines {
            self.both("\n");
            self.both(key);
            let label = if key.is_empty() { Label::Sentence } else { label(key) };
            if label == Label::OfTheAnswer { self.both(MARK) } else { self.text(key, value, label) }
        }
        true
    }

    fn counted(&mut self, number: Number, text: &str) {
        if self.numbers.len() < PARTS_MAX && number.value.is_finite() {
            self.numbers.push(number);
            self.frame.push_str(NUMBER);
        } else {
            self.frame.push_str(text);
        }
    }

    fn name(&mut self, key: &str, name: &str, is_id: bool) {
        if self.names.len() >= PARTS_MAX {
            self.frame.push_str(name);
            return;
        }
        self.names.push(eight(&[name]));
        self.frame.push_str(NAME);
        let is_told = name.chars().count() <= NAME_CHARS_MAX && !name.contains(char::is_control);
        if is_told && !self.named.iter().any(|(_, known)| known.name == name) {
            let member = if key.chars().count() <= NAME_CHARS_MAX { key } else { "" };
            self.named.push((is_id, Named { member: member.to_owned(), name: name.to_owned() }));
        }
    }

    fn is_near(&self, at: Timestamp) -> bool {
        (at.as_millis() - self.now.as_millis()).abs() <= ANSWERED_MS
    }

    /// A time is none of the parts: it may end what was given, and tell that something was made.
    fn time(&mut self, text: &str, at: Timestamp, label: Label) {
        let ahead = at.as_millis() - self.now.as_millis();
        if AHEAD_MS.contains(&ahead) {
            self.lapses_at(at.as_millis());
        }
        self.made_now |= label == Label::Time { of_making: true } && ahead.abs() <= NOW_MS;
        self.frame.push_str(MARK);
        // Until when something holds is part of what is said.
        let is_number = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if !AHEAD_MS.contains(&ahead) && (self.is_near(at) || !is_number) {
            self.quiet.push_str(MARK);
        } else {
            self.quiet.push_str(text);
        }
    }

    fn lapses_at(&mut self, at_ms: i64) {
        self.lapses = Some(self.lapses.unwrap_or(0).rotate_left(7) ^ at_ms.unsigned_abs());
    }
}

/// A document that stands in a text, as MCP and others wrap theirs.
pub(super) fn unwrapped(text: &str, wrapped: usize) -> Option<Json> {
    let text = text.trim();
    let looks_like_one = wrapped < WRAPPED_MAX && (text.starts_with('{') || text.starts_with('['));
    let value = looks_like_one.then(|| json::parse(text).ok()).flatten()?;
    matches!(value, Json::Object(_) | Json::Array(_)).then_some(value)
}
