//! Similarity of two calls of one tool (docs/learning.md#near-duplicate-calls): by the leaves of their arguments, and
//! by the words of free texts. The parsed shape of a call is kept, because every later call is compared with it.

mod identity;
mod near_duplicate;
mod nonce;
mod packed_fields;
mod shell_line;

use std::{cmp::Ordering, collections::BTreeSet};

use serde_json::{Map, Value};

pub use self::identity::differ_in_identities;
pub use self::near_duplicate::NearDuplicate;
use self::packed_fields::{Field, LeafValue, PackedFields};
use super::{
    content::{self, Content},
    json::{self, Json},
};

/// Maximum number of leaves that are compared individually; further ones are compared together.
const FIELDS_MAX: usize = 64;
/// Minimum share of equal leaves of near duplicates.
const NEAR: f64 = 0.8;

/// Marks of paths, addresses and identifiers that search words seldom have.
const IDENTIFIER_MARKS: [char; 6] = ['@', '/', '.', '_', ':', '-'];

/// Shape of a call's arguments, for similarity.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArgumentShape {
    looks: PackedFields,
    /// Hash of the arguments without their nonces, if there are nonces and others.
    without_nonces: Option<u64>,
    content: Content,
}

impl ArgumentShape {
    /// The shape of arguments in canonical form; empty unless a JSON object.
    #[must_use]
    pub fn of(arguments: &str) -> Self {
        json::parse(arguments).map_or_else(|_| Self::default(), |arguments| Self::of_json(&arguments))
    }

    /// [`Self::of`] for parsed arguments.
    #[must_use]
    pub fn of_json(arguments: &Json) -> Self {
        let Json::Object(members) = arguments else { return Self::default() };
        let (looks, without_nonces) = (PackedFields::of(members, FIELDS_MAX), nonce::without(members));
        Self { looks, without_nonces, content: content::of(arguments) }
    }

    /// Approximate memory size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.looks.bytes()
    }

    /// True for near duplicates: at most a fifth of the leaves differ or are on one side alone.
    #[must_use]
    pub fn is_near(&self, other: &Self) -> bool {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (a, b) in self.pairs(other) {
            let weight = a.map_or(0.0, |a| a.weight()).max(b.map_or(0.0, |b| b.weight()));
            sum += weight * a.zip(b).map_or(0.0, |(a, b)| a.value.similarity(&b.value));
            weights += weight;
        }
        sum >= NEAR * weights
    }

    /// Hash of the arguments without their nonces; none without nonces, or with nothing else.
    #[must_use]
    pub fn without_nonces(&self) -> Option<u64> {
        self.without_nonces
    }

    /// The only differing field of two arguments with the same two or more fields.
    #[must_use]
    pub fn only_difference(&self, other: &Self) -> Option<&str> {
        let (mine, theirs) = (self.looks.fields(), other.looks.fields());
        let same_fields = mine.clone().map(|field| field.name()).eq(theirs.clone().map(|field| field.name()));
        let mut differing = mine.clone().zip(theirs).filter(|(a, b)| a.value != b.value).map(|(a, _)| a.name());
        let one = differing.next().filter(|_| same_fields && mine.count() >= 2)?;
        differing.next().is_none().then_some(one)
    }

    /// True for shell lines that run the same programs on the same operands; options, and `cd`, `env`, `timeout` or
    /// `sudo` before a program, are ignored.
    #[must_use]
    pub fn runs_the_same(&self, other: &Self) -> bool {
        self.pairs(other).all(|(a, b)| {
            let Some((a, b)) = a.zip(b) else { return false };
            a.value == b.value
                || a.text().zip(b.text()).is_some_and(|(a, b)| shell_line::operands(a).eq(shell_line::operands(b)))
        })
    }

    /// True for non-empty arguments.
    #[must_use]
    pub fn has_fields(&self) -> bool {
        self.looks.fields().next().is_some()
    }

    /// Content class of the arguments.
    #[must_use]
    pub fn content(&self) -> Content {
        self.content
    }

    /// The differing fields of two arguments.
    pub fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let pairs = self.pairs(other).filter(|(a, b)| a.map(|a| a.value) != b.map(|b| b.value));
        pairs.filter_map(|(a, b)| a.or(b).map(|field| field.name()))
    }

    /// True when the field's value is a path or an address.
    #[must_use]
    pub fn is_place(&self, name: &str) -> bool {
        self.identifier(name).is_some_and(|value| value.contains(['/', '\\', '@']))
    }

    /// The field's value, if it is one word with a mark of identifiers: `src/lib.rs`, `a@b.com`.
    fn identifier(&self, name: &str) -> Option<&str> {
        let text = self.value(name)?.text()?;
        (!text.contains(char::is_whitespace) && text.contains(IDENTIFIER_MARKS)).then_some(text)
    }

    fn value(&self, name: &str) -> Option<Field<'_>> {
        self.looks.fields().find(|field| field.is(name))
    }

    /// The field's value as an ordinal: a number, a date, or the last number in a text (`page-3`).
    fn ordinal(&self, name: &str) -> Option<f64> {
        let field = self.value(name)?;
        match field.value {
            LeafValue::Number(number) => Some(number),
            LeafValue::Text(..) => place_in(field.text()?),
            LeafValue::Other(_) => None,
        }
    }

    /// The fields of both, joined by name.
    fn pairs<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (Option<Field<'a>>, Option<Field<'a>>)> {
        let (mut mine, mut theirs) = (self.looks.fields().peekable(), other.looks.fields().peekable());
        std::iter::from_fn(move || {
            let order = match (mine.peek(), theirs.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.by_name(b),
            };
            let left = if order.is_le() { mine.next() } else { None };
            let right = if order.is_ge() { theirs.next() } else { None };
            Some((left, right))
        })
    }
}

/// True for a sweep: one field names another page, day, number, path, address or identifier in each of the shapes, in
/// any order (parallel calls end in any).
#[must_use]
pub fn is_sweep(shapes: &[&ArgumentShape]) -> bool {
    let Some(first) = shapes.first().filter(|_| shapes.len() > 1) else { return false };
    first.looks.fields().any(|field| {
        let names: Option<BTreeSet<&str>> = shapes.iter().map(|shape| shape.identifier(field.name())).collect();
        if names.is_some_and(|names| names.len() == shapes.len()) {
            return true;
        }
        let places: Option<Vec<f64>> = shapes.iter().map(|shape| shape.ordinal(field.name())).collect();
        places.is_some_and(|mut places| {
            places.sort_by(f64::total_cmp);
            places.windows(2).all(|pair| pair[0] < pair[1])
        })
    })
}

fn place_in(text: &str) -> Option<f64> {
    let is_date = text.bytes().all(|b| b.is_ascii_digit() || b"-:TZ.+ ".contains(&b));
    let digits: String = if is_date {
        text.chars().filter(char::is_ascii_digit).collect()
    } else {
        let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
        let begin = text[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        text.get(begin..end)?.to_owned()
    };
    digits.parse().ok()
}

/// True for near-duplicate arguments in canonical form; false unless both are JSON objects.
#[must_use]
pub fn are_near(a: &str, b: &str) -> bool {
    let is_object = |text: &str| text.starts_with('{');
    is_object(a) && is_object(b) && ArgumentShape::of(a).is_near(&ArgumentShape::of(b))
}

/// Names of the differing fields; empty unless both are JSON objects.
#[must_use]
pub fn differing_fields(a: &str, b: &str) -> Vec<String> {
    let parse = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let (Some(a), Some(b)) = (parse(a), parse(b)) else { return Vec::new() };
    let fields: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    fields.into_iter().filter(|field| a.get(*field) != b.get(*field)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarity_is_of_leaves_and_of_the_words_of_free_texts() {
        let query = |week: &str| {
            format!(r#"{{"city":"Hamburg","query":"cheap flights from Hamburg to Lisbon in the {week} week of May"}}"#)
        };
        for (a, b, expected) in [
            ("{}", "{}", true),
            (r#"{"a":"x","b":[1,2]}"#, r#"{"a":"x","b":[1,2]}"#, true),
            (r#"{"a":1}"#, r#"{"b":1}"#, false),
            ("no json", "{}", false),
            (&query("first"), &query("second"), true),
            // A setting differs, or the name of a thing.
            (r#"{"amount":100,"to":"anna"}"#, r#"{"amount":901,"to":"anna"}"#, true),
            (r#"{"from":"HAM","day":"2026-05-01"}"#, r#"{"from":"HAM","day":"2026-06-09"}"#, true),
            (r#"{"order_id":"A-1001"}"#, r#"{"order_id":"A-1002"}"#, false),
            (r#"{"order_id":"A-1001","status":"open"}"#, r#"{"order_id":"A-1002","status":"open"}"#, false),
            (r#"{"x":1,"y":2,"button":"left"}"#, r#"{"x":9,"y":8,"button":"left"}"#, false),
            // One leaf of many, also inside objects and lists.
            (r#"{"a":{"b":["p","q","r"],"c":"s"},"d":"t"}"#, r#"{"a":{"b":["p","q","z"],"c":"s"},"d":"t"}"#, true),
            (r#"{"a":{"b":["p","q"]}}"#, r#"{"a":{"b":["q","p"]}}"#, false),
        ] {
            assert_eq!((are_near(a, b), are_near(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn a_field_that_names_another_thing_each_time_is_a_sweep() {
        let sweep = |texts: &[&str]| {
            let shapes: Vec<ArgumentShape> = texts.iter().map(|text| ArgumentShape::of(text)).collect();
            is_sweep(&shapes.iter().collect::<Vec<_>>())
        };
        assert!(sweep(&[r#"{"page":1,"q":"a"}"#, r#"{"page":2,"q":"a"}"#, r#"{"page":3,"q":"a"}"#]));
        assert!(sweep(&[r#"{"day":"2026-05-31"}"#, r#"{"day":"2026-06-01"}"#]));
        assert!(sweep(&[r#"{"file":"part-9.txt"}"#, r#"{"file":"part-10.txt"}"#]));
        assert!(sweep(&[r#"{"page":1}"#, r#"{"page":3}"#, r#"{"page":2}"#]));
        assert!(!sweep(&[r#"{"page":1}"#, r#"{"page":3}"#, r#"{"page":1}"#]));
        assert!(sweep(&[r#"{"to":"ann@a.com","from":"me"}"#, r#"{"to":"bob@a.com","from":"me"}"#]));
        assert!(sweep(&[r#"{"path":"src/lib.rs"}"#, r#"{"path":"src/main.rs"}"#]));
        assert!(!sweep(&[r#"{"to":"ann@a.com"}"#, r#"{"to":"bob@a.com"}"#, r#"{"to":"ann@a.com"}"#]));
        assert!(!sweep(&[r#"{"q":"a"}"#, r#"{"q":"b"}"#]));
        assert!(!sweep(&[r#"{"q":"late orders."}"#, r#"{"q":"orders, late."}"#]));
    }
}
