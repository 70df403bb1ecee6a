//! Vocabulary that classifies the parts of a result: keys of objects and words of sentences. Common names of the field,
//! none of a single provider.

use std::borrow::Cow;

/// Class of a value by its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// Metadata of the response: its time, its duration, its request id.
    OfTheAnswer,
    /// It names a thing.
    Identity,
    /// Names a thing if it looks like a name; `{"payment": "pending"}` is a status.
    Thing,
    /// It is an address.
    Address,
    /// It is a time.
    Time {
        /// At which something was made.
        of_making: bool,
    },
    /// A lifetime of the response, with milliseconds per unit.
    Lifetime(u64),
    /// A secret.
    Secret,
    /// Volatile, and without meaning.
    Beside,
    /// A price or a balance.
    Amount,
    /// It is a sentence for the caller.
    Sentence,
    Plain,
}

/// Last words of members that name a thing.
const IDENTITIES: [&str; 18] = [
    "id",
    "ids",
    "uuid",
    "guid",
    "uid",
    "sid",
    "iid",
    "number",
    "no",
    "sha",
    "ref",
    "reference",
    "identifier",
    "key",
    "arn",
    "urn",
    "pnr",
    "locator",
];
/// Things that are named by their kind alone: `{"ticket": 88120}`, `ticket 88120`.
const THINGS: [&str; 13] = [
    "ticket",
    "order",
    "invoice",
    "booking",
    "reservation",
    "confirmation",
    "transaction",
    "receipt",
    "issue",
    "case",
    "shipment",
    "payment",
    "refund",
];
/// Before `number` and `no`: it counts.
const COUNTED: [&str; 10] = ["page", "line", "row", "version", "sequence", "seq", "step", "attempt", "chunk", "block"];
/// Before `id`: of the response, not of its subject.
const OF_REQUESTS: [&str; 5] = ["request", "trace", "correlation", "span", "process"];
/// Last words of keys that hold a secret.
const SECRETS: [&str; 9] =
    ["token", "otp", "password", "passwd", "secret", "pin", "passcode", "credential", "signature"];
/// Words that make a `code` behind them a secret.
const SECRET_CODES: [&str; 10] =
    ["verification", "auth", "authentication", "security", "login", "access", "sms", "mfa", "time", "backup"];
/// Participles that mark a creation time.
const MAKING: [&str; 22] = [
    "created",
    "sent",
    "booked",
    "submitted",
    "placed",
    "issued",
    "inserted",
    "published",
    "posted",
    "added",
    "registered",
    "reserved",
    "ordered",
    "paid",
    "charged",
    "refunded",
    "transferred",
    "scheduled",
    "queued",
    "launched",
    "provisioned",
    "filed",
];
/// Members that hold a price or a balance.
const AMOUNTS: [&str; 8] = ["price", "amount", "cost", "fee", "fare", "rate", "balance", "value"];
/// Members that hold a sentence for the caller.
const SENTENCES: [&str; 7] = ["message", "msg", "result", "text", "detail", "output", "summary"];

/// Units of measurement.
const UNITS: [&str; 30] = [
    "ns", "us", "ms", "s", "m", "h", "d", "min", "px", "b", "kb", "mb", "gb", "tb", "k", "g", "kg", "mm", "cm", "km",
    "x", "st", "nd", "rd", "th", "am", "pm", "usd", "eur", "gbp",
];

pub(super) fn is_unit(word: &str) -> bool {
    is_in(&UNITS, &word.to_ascii_lowercase())
}

fn is_in(words: &[&str], word: &str) -> bool {
    words.contains(&word)
}

/// The class of a value under this key.
pub(super) fn label(key: &str) -> Label {
    let key = snake(key);
    let words = || key.split('_').filter(|word| !word.is_empty());
    let mut backwards = key.rsplit('_').filter(|word| !word.is_empty());
    let (last, before) = (backwards.next().unwrap_or_default(), backwards.next().unwrap_or_default());
    match (before, last) {
        (before, "id" | "ids") if is_in(&OF_REQUESTS, before) => Label::OfTheAnswer,
        (_, "nonce" | "pid" | "ppid" | "elapsed" | "took" | "timestamp")
        | ("elapsed" | "duration" | "took" | "latency" | "runtime", "ms")
        | ("elapsed" | "duration", "seconds")
        | ("elapsed", "s")
        | ("server", "time") => Label::OfTheAnswer,
        // A page cursor may be the requested content: it is no evidence, and still makes another answer.
        (_, "etag" | "duration" | "latency" | "cursor")
        | ("page" | "continuation" | "pagination" | "next", "token") => Label::Beside,
        ("expires", "in") | (_, "ttl") | ("ttl" | "lease" | "in", "seconds") | ("valid", "for") => {
            Label::Lifetime(1_000)
        }
        ("ttl" | "lease" | "in", "ms") => Label::Lifetime(1),
        (before, "code") if is_in(&THINGS, before) || is_in(&["tracking", "voucher", "reference"], before) => {
            Label::Identity
        }
        (before, "code") if before.is_empty() || is_in(&SECRET_CODES, before) => Label::Secret,
        (_, last) if is_in(&SECRETS, last) => Label::Secret,
        (before, "number" | "no") if is_in(&COUNTED, before) => Label::Plain,
        (_, last) if is_in(&IDENTITIES, last) => Label::Identity,
        (_, "url" | "uri" | "href" | "link" | "permalink") => Label::Address,
        (_, last) if is_in(&AMOUNTS, last) => Label::Amount,
        _ if words().any(|word| is_in(&MAKING, word)) || words().any(|word| word == "creation") => {
            Label::Time { of_making: true }
        }
        (_, "at" | "time" | "date" | "ts" | "expiry" | "expires" | "expiration" | "until" | "deadline")
        | ("date", _) => Label::Time { of_making: false },
        ("", last) if is_in(&THINGS, last) => Label::Thing,
        ("", last) if is_in(&SENTENCES, last) => Label::Sentence,
        _ => Label::Plain,
    }
}

/// `createdAt`, `created-at`, `Created At` and `Created_At` are one key.
pub(super) fn snake(key: &str) -> Cow<'_, str> {
    if !key.bytes().any(|b| b.is_ascii_uppercase() || matches!(b, b'-' | b' ' | b'.')) {
        return Cow::Borrowed(key);
    }
    let mut out = String::with_capacity(key.len() + 4);
    let mut after_small = false;
    for c in key.chars() {
        if c.is_ascii_uppercase() && after_small {
            out.push('_');
        }
        after_small = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(if matches!(c, '-' | ' ' | '.') { '_' } else { c.to_ascii_lowercase() });
    }
    Cow::Owned(out)
}

/// Effect of a word on the class of the words behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announcement {
    Identity,
    Secret,
}

pub(super) fn announces(word: &str, before: Option<&str>) -> Option<Announcement> {
    let is_thing = |word: &str| is_in(&THINGS, word) || is_in(&["tracking", "reference"], word);
    match word {
        "code" if before.is_some_and(is_thing) => Some(Announcement::Identity),
        "code" => Some(Announcement::Secret),
        word if is_in(&SECRETS, word) => Some(Announcement::Secret),
        word if is_in(&IDENTITIES, word) || is_in(&THINGS, word) => Some(Announcement::Identity),
        _ => None,
    }
}

/// True for a sentence that reports a creation by its verb: `Created issue ENG-411`.
pub(super) fn tells_of_making(sentence: &str) -> bool {
    const WORDS_MAX: usize = 5;
    let words = sentence.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    words.take(WORDS_MAX).any(|word| is_in(&MAKING, &word.to_ascii_lowercase()))
}
