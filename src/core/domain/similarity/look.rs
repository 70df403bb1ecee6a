//! What the arguments of one call look like, in one run of bytes. A tree remembers up to thirty of these a session,
//! and most of what a tree takes would be them: as lists of fields, texts and trigrams they took three times as much.

use std::cmp::Ordering;

use crate::domain::json::Json;

/// Longest text that is compared, in characters: a longer one is compared by its beginning.
const TEXT_MAX: usize = 1_000;

/// Fields in the order of their names: of each the lengths of its name, text and trigrams, its kind, its weight, and
/// then those three.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Looks(Box<[u8]>);

/// One field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    name: &'a [u8],
    pub(super) weight: f64,
    pub(super) value: Look<'a>,
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Look<'a> {
    Number(f64),
    /// The text, cut, and its trigrams in order.
    Text(&'a [u8], Trigrams<'a>),
    /// `true`, `null`: alike or not.
    Other(&'a [u8]),
}

/// The trigrams of a text, each once and in order: in three bytes where every character has seven bits, in eight
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Trigrams<'a> {
    Ascii(&'a [[u8; 3]]),
    Wide(&'a [[u8; 8]]),
}

const NUMBER: u8 = 0;
const ASCII: u8 = 1;
const WIDE: u8 = 2;
const OTHER: u8 = 3;
/// Bytes before a field's name: three lengths, the kind, the weight.
const HEAD: usize = 4 + 4 + 4 + 1 + 8;

impl Looks {
    /// Of the first `most` fields.
    pub(super) fn of(fields: &[(String, Json)], most: usize) -> Self {
        let mut fields: Vec<_> = fields.iter().collect();
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut bytes = Vec::new();
        fields.into_iter().take(most).for_each(|(name, value)| write(&mut bytes, name, value));
        Self(bytes.into())
    }

    /// Bytes that it takes beside itself.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(super) fn fields(&self) -> Fields<'_> {
        Fields(&self.0)
    }
}

fn write(to: &mut Vec<u8>, name: &str, value: &Json) {
    let (length, kind, text, trigrams) = match value {
        Json::Number(number) => {
            let number: f64 = number.parse().unwrap_or(0.0);
            (0, NUMBER, number.to_le_bytes().to_vec(), Vec::new())
        }
        Json::String(whole) => {
            let (kind, text, trigrams) = text_look(whole);
            (whole.chars().count(), kind, text, trigrams)
        }
        Json::Array(_) | Json::Object(_) => {
            let whole = value.canonical();
            let (kind, text, trigrams) = text_look(&whole);
            (whole.len(), kind, text, trigrams)
        }
        Json::Null | Json::Bool(_) => (0, OTHER, value.canonical().into_bytes(), Vec::new()),
    };
    for part in [name.len(), text.len(), trigrams.len()] {
        to.extend((part as u32).to_le_bytes());
    }
    to.push(kind);
    to.extend((1.0 + (1.0 + length as f64).ln()).to_le_bytes());
    to.extend_from_slice(name.as_bytes());
    to.extend(text);
    to.extend(trigrams);
}

/// The first characters of a text.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    let is_whole = text.len() <= most;
    let end = if is_whole { None } else { text.char_indices().nth(most) };
    end.map_or(text, |(end, _)| &text[..end])
}

/// The kind of a text, the text, cut, and its trigrams.
fn text_look(text: &str) -> (u8, Vec<u8>, Vec<u8>) {
    let cut = beginning(text, TEXT_MAX);
    let trigrams = if cut.is_ascii() {
        in_order(cut, windows(cut).map(narrow)).concat()
    } else {
        in_order(cut, windows(cut).map(u64::to_be_bytes)).concat()
    };
    (if cut.is_ascii() { ASCII } else { WIDE }, cut.as_bytes().to_vec(), trigrams)
}

/// The fields of some looks, in the order of their names.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let (head, rest) = self.0.split_first_chunk::<HEAD>()?;
        let length = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
        let (name, rest) = rest.split_at_checked(length(0))?;
        let (text, rest) = rest.split_at_checked(length(4))?;
        let (trigrams, rest) = rest.split_at_checked(length(8))?;
        self.0 = rest;
        let value = match head[12] {
            NUMBER => Look::Number(f64::from_le_bytes(*text.first_chunk()?)),
            ASCII => Look::Text(text, Trigrams::Ascii(trigrams.as_chunks().0)),
            WIDE => Look::Text(text, Trigrams::Wide(trigrams.as_chunks().0)),
            _ => Look::Other(text),
        };
        Some(Field { name, weight: f64::from_le_bytes(*head.last_chunk()?), value })
    }
}

impl<'a> Field<'a> {
    pub(super) fn name(&self) -> &'a str {
        str::from_utf8(self.name).unwrap_or_default()
    }

    pub(super) fn by_name(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name.as_bytes()
    }

    /// Its value, where that is a text.
    pub(super) fn text(&self) -> Option<&'a str> {
        match self.value {
            Look::Text(text, _) => str::from_utf8(text).ok(),
            Look::Number(_) | Look::Other(_) => None,
        }
    }
}

impl Look<'_> {
    /// How alike two values are, 0 to 1.
    pub(super) fn alike(&self, other: &Self) -> f64 {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => {
                let most = a.abs().max(b.abs());
                if most > 0.0 { (1.0 - (a - b).abs() / most).max(0.0) } else { 1.0 }
            }
            (Self::Text(a, _), Self::Text(b, _)) if a == b => 1.0,
            (Self::Text(_, a), Self::Text(_, b)) => a.alike(b),
            (Self::Other(a), Self::Other(b)) if a == b => 1.0,
            _ => 0.0,
        }
    }
}

impl Trigrams<'_> {
    fn alike(&self, other: &Self) -> f64 {
        match (self, other) {
            (Self::Ascii(a), Self::Ascii(b)) => jaccard(a, b, |a| wide(*a), |b| wide(*b)),
            (Self::Wide(a), Self::Wide(b)) => jaccard(a, b, |a| u64::from_be_bytes(*a), |b| u64::from_be_bytes(*b)),
            (Self::Ascii(a), Self::Wide(b)) => jaccard(a, b, |a| wide(*a), |b| u64::from_be_bytes(*b)),
            (Self::Wide(a), Self::Ascii(b)) => jaccard(a, b, |a| u64::from_be_bytes(*a), |b| wide(*b)),
        }
    }
}

/// Both in order.
fn jaccard<T, U>(a: &[T], b: &[U], of_a: impl Fn(&T) -> u64, of_b: impl Fn(&U) -> u64) -> f64 {
    let (mut i, mut j, mut shared) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        match of_a(&a[i]).cmp(&of_b(&b[j])) {
            Ordering::Less => i += 1,
            Ordering::Greater => j += 1,
            Ordering::Equal => (i, j, shared) = (i + 1, j + 1, shared + 1),
        }
    }
    let all = a.len() + b.len() - shared;
    if all == 0 { 1.0 } else { shared as f64 / all as f64 }
}

/// Three characters, of 21 bits each as a scalar value has, at every place of a text, with an edge on both sides so
/// that short texts have some too.
pub(super) fn windows(text: &str) -> impl Iterator<Item = u64> {
    let mut window = u64::from(' ') << 21 | u64::from(' ');
    text.chars().chain([' ']).map(move |c| {
        window = (window << 21 | u64::from(c)) & ((1 << 63) - 1);
        window
    })
}

/// A trigram of characters of seven bits each, in the order of those of 21.
fn narrow(window: u64) -> [u8; 3] {
    [(window >> 42) as u8, (window >> 21) as u8, window as u8]
}

fn wide([a, b, c]: [u8; 3]) -> u64 {
    u64::from(a) << 42 | u64::from(b) << 21 | u64::from(c)
}

fn in_order<T: Ord>(text: &str, windows: impl Iterator<Item = T>) -> Vec<T> {
    let mut trigrams = Vec::with_capacity(text.len() + 1);
    trigrams.extend(windows);
    trigrams.sort_unstable();
    trigrams.dedup();
    trigrams
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::domain::json;

    #[test]
    fn texts_share_trigrams_whatever_their_characters_take() {
        let set = |text: &str| -> BTreeSet<Vec<char>> {
            let edged: Vec<char> = "  ".chars().chain(text.chars()).chain([' ']).collect();
            edged.windows(3).map(<[char]>::to_vec).collect()
        };
        let texts =
            ["", "a", "cafe noir", "café noir", "cafe\u{7f}\u{0} noir", "naïve café", "咖啡 cafe noir", "cafe cafe"];
        for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
            let both = set(a).intersection(&set(b)).count() as f64;
            let all = set(a).union(&set(b)).count() as f64;
            let look = |text: &str| Looks::of(&[("name".to_owned(), Json::String(text.to_owned()))], 1);
            let (a, b) = (look(a), look(b));
            let (a, b) = (a.fields().next().expect("one"), b.fields().next().expect("one"));
            assert!((a.value.alike(&b.value) - both / all).abs() < 1e-12, "{:?} {:?}", a.text(), b.text());
        }
    }

    #[test]
    fn every_field_comes_back_in_the_order_of_names() {
        let Ok(Json::Object(fields)) = json::parse(r#"{"z": [1, 2], "a": true, "é": "é", "m": -2.5, "": ""}"#) else {
            panic!("an object")
        };
        let looks = Looks::of(&fields, 5);
        let told: Vec<(&str, Option<&str>)> = looks.fields().map(|field| (field.name(), field.text())).collect();
        assert_eq!(told, [("", Some("")), ("a", None), ("m", None), ("z", Some("[1,2]")), ("é", Some("é"))]);
        assert!(looks.fields().any(|field| field.value == Look::Number(-2.5)));
    }
}
