//! Canonical JSON laws: one text per meaning.

use std::collections::BTreeMap;

use callgate_core::{
    domain::{
        answer::ComparableResult,
        call::{Proposal, Request},
        fingerprint::ResultDigest,
        ids::{CallId, DEFAULT_TENANT, SessionId, ToolName},
        json::{self, Json, parse},
        time::Timestamp,
    },
    policy::Policy,
};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::cases;

/// A document by its meaning.
#[derive(Debug, Clone)]
enum Doc {
    Word(&'static str),
    /// Sign, significant digits, power of ten.
    Number(bool, String, i32),
    Text(String),
    List(Vec<Doc>),
    Map(BTreeMap<String, Doc>),
}

/// Choices of a writer: the same document by other choices is another text with the same meaning.
#[derive(Debug, Clone)]
struct Pen {
    choices: Vec<u8>,
    at: usize,
}

impl Pen {
    fn choose(&mut self, among: usize) -> usize {
        self.at += 1;
        usize::from(self.choices[self.at % self.choices.len()].wrapping_mul(31).wrapping_add(self.at as u8)) % among
    }

    fn space(&mut self, out: &mut String) {
        let spaces = ["", "", "", " ", "\n\t", "\r "];
        out.push_str(spaces[self.choose(spaces.len())]);
    }

    fn write(&mut self, doc: &Doc, out: &mut String) {
        self.space(out);
        match doc {
            Doc::Word(word) => out.push_str(word),
            Doc::Number(negative, digits, power) => self.number(*negative, digits, *power, out),
            Doc::Text(text) => self.text(text, out),
            Doc::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.write(item, out);
                }
                out.push(']');
            }
            Doc::Map(members) => {
                let mut members: Vec<_> = members.iter().collect();
                out.push('{');
                let mut first = true;
                while !members.is_empty() {
                    let (key, value) = members.swap_remove(self.choose(members.len()));
                    out.push_str(if first { "" } else { "," });
                    first = false;
                    self.space(out);
                    self.text(key, out);
                    self.space(out);
                    out.push(':');
                    self.write(value, out);
                }
                out.push('}');
            }
        }
        self.space(out);
    }

    /// The point anywhere, and an exponent that makes up for it.
    fn number(&mut self, negative: bool, digits: &str, power: i32, out: &mut String) {
        out.push_str(if negative { "-" } else { "" });
        let plain = self.choose(2) == 0 && (0..40).contains(&power);
        if plain {
            out.push_str(digits);
            out.push_str(&"0".repeat(if digits == "0" { 0 } else { power as usize }));
            out.push_str(["", ".0", ".000", "e0", "E+00"][self.choose(5)]);
            return;
        }
        let whole = self.choose(digits.len() + 1);
        out.push_str(if whole == 0 { "0" } else { &digits[..whole] });
        let (fraction, zeros) = (&digits[whole..], self.choose(3));
        if !fraction.is_empty() || zeros > 0 {
            out.push('.');
            out.push_str(fraction);
            out.push_str(&"0".repeat(if fraction.is_empty() { zeros } else { zeros.saturating_sub(1) }));
        }
        let exponent = power + fraction.len() as i32;
        if exponent != 0 || self.choose(2) == 0 {
            out.push_str(["e", "E"][self.choose(2)]);
            out.push_str(if exponent >= 0 { ["", "+", "+0", "00"][self.choose(4)] } else { "" });
            out.push_str(&exponent.to_string());
        }
    }

    fn text(&mut self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            let escaped = self.choose(4) == 0;
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' if escaped => out.push_str("\\n"),
                '/' if escaped => out.push_str("\\/"),
                c if escaped || c < ' ' => {
                    let mut units = [0_u16; 2];
                    for unit in c.encode_utf16(&mut units) {
                        let hex = if self.choose(2) == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
                        out.push_str(&hex);
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn write_document(doc: &Doc, pen: &Pen) -> String {
    let mut out = String::new();
    pen.clone().write(doc, &mut out);
    out
}

fn pen() -> impl Strategy<Value = Pen> {
    vec(any::<u8>(), 1..40).prop_map(|choices| Pen { choices, at: 0 })
}

fn text() -> impl Strategy<Value = String> {
    let letters = [
        "a",
        "b",
        "é",
        "e\u{301}",
        "Å",
        "\u{1100}\u{1161}",
        "ﬁ",
        "😀",
        "\u{fb33}",
        "\"",
        "\\",
        "/",
        "\n",
        "\u{1f}",
        " ",
        "\u{323}",
    ];
    prop_oneof![
        vec(select(letters.to_vec()), 0..6).prop_map(|letters| letters.concat()),
        any::<String>().prop_map(|text| text.replace('\0', "")),
    ]
}

fn number() -> impl Strategy<Value = Doc> {
    let power = prop_oneof![4 => Just(0), 4 => -8..12_i32, 2 => -40..60_i32, 1 => -360..420_i32];
    let digits = prop_oneof!["[1-9]", "[1-9][0-9]{0,5}[1-9]", "[1-9][0-9]{10,40}[1-9]"];
    prop_oneof![
        9 => (any::<bool>(), digits, power).prop_map(|(negative, digits, power)| Doc::Number(negative, digits, power)),
        1 => (any::<bool>(), -9..9_i32).prop_map(|(negative, power)| Doc::Number(negative, "0".to_owned(), power)),
    ]
}

fn doc() -> impl Strategy<Value = Doc> {
    let leaf =
        prop_oneof![select(vec!["null", "true", "false"]).prop_map(Doc::Word), number(), text().prop_map(Doc::Text)];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Doc::List),
            prop::collection::btree_map(text(), inner, 0..5).prop_map(Doc::Map),
        ]
    })
}

fn read(text: &str) -> Json {
    parse(text).unwrap_or_else(|problem| panic!("{text}\n{problem}"))
}

fn proposal(arguments: &str) -> Proposal {
    Policy::default().propose(Request::new(
        DEFAULT_TENANT,
        SessionId::parse("session", "s").expect("valid"),
        CallId::parse("call_id", "c").expect("valid"),
        ToolName::parse("tool", "t").expect("valid"),
        read(arguments),
    ))
}

/// The verdict of `serde_json` on JSON validity; none for a number beyond its own type.
fn is_json(text: &str) -> Option<bool> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Err(problem) if problem.to_string().starts_with("number out of range") => None,
        read => Some(read.is_ok()),
    }
}

/// One edit: position (a share of the text), insertion, number of removed characters.
type Edit = (prop::sample::Index, &'static str, usize);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let pieces = [
        "", "", "{", "}", "[", "]", "\"", ",", ":", "\\", "\\u12", "\\ud800", "\u{0}", "\n", "é", "0", "1", "-", "+",
        ".", "e", "E", "t", "nul", " ",
    ];
    vec((any::<prop::sample::Index>(), select(pieces.to_vec()), 0..3_usize), 1..4)
}

fn apply_edits(text: &str, edits: &[Edit]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (place, piece, removed) in edits {
        let at = place.index(chars.len() + 1);
        let end = (at + removed).min(chars.len());
        chars.splice(at..end, piece.chars());
    }
    chars.into_iter().collect()
}

fn agrees_with_serde(text: &str) -> Result<(), TestCaseError> {
    let mine = parse(text);
    let own_rule = |problem: &String| {
        ["twice in one object", "contains NUL", "is nested deeper"].iter().any(|rule| problem.contains(rule))
    };
    if let (Some(theirs), false) = (is_json(text), mine.as_ref().err().is_some_and(own_rule)) {
        prop_assert_eq!(mine.is_ok(), theirs, "{:?}: {:?}", text, mine);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn the_way_it_is_written_does_not_change_a_fingerprint(doc in doc(), one in pen(), other in pen()) {
        let (one, other) = (write_document(&doc, &one), write_document(&doc, &other));
        let (a, b) = (proposal(&one), proposal(&other));
        prop_assert_eq!(&a.canonical, &b.canonical, "{} / {}", one, other);
        prop_assert_eq!((a.fingerprint, a.args_digest), (b.fingerprint, b.args_digest));
    }

    #[test]
    fn canonicalising_twice_is_once(doc in doc(), pen in pen()) {
        let value = read(&write_document(&doc, &pen));
        let canonical = value.canonical();
        prop_assert_eq!(read(&canonical).canonical(), canonical.clone());
        prop_assert_eq!(read(&canonical), value, "{}", canonical);
    }

    #[test]
    fn json_is_accepted_as_by_serde_json(doc in doc(), pen in pen()) {
        let text = write_document(&doc, &pen);
        prop_assert!(parse(&text).is_ok() && is_json(&text) != Some(false), "{text:?}");
    }

    #[test]
    fn malformed_json_is_rejected_as_by_serde_json(doc in doc(), pen in pen(), edits in edits()) {
        agrees_with_serde(&apply_edits(&write_document(&doc, &pen), &edits))?;
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>(), bytes in vec(any::<u8>(), 0..40)) {
        agrees_with_serde(&text)?;
        agrees_with_serde(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn integers_keep_all_their_digits(
        negative in any::<bool>(), digits in "[1-9][0-9]{0,600}", at in any::<prop::sample::Index>()
    ) {
        let sign = if negative { "-" } else { "" };
        let number = format!("{sign}{digits}");
        let canonical = read(&number).canonical();
        if digits.len() <= 400 {
            prop_assert_eq!(&canonical, &number);
        }
        let at = at.index(digits.len());
        let digit = (digits.as_bytes()[at] - b'0') % 9 + 1;
        let mut other = digits.clone();
        other.replace_range(at..=at, &digit.to_string());
        prop_assert_ne!(read(&format!("{sign}{other}")).canonical(), canonical);
    }

    #[test]
    fn an_error_never_looks_like_a_success(
        kind in text(), signature in text(), result in text(), doc in doc(), pen in pen()
    ) {
        let error = ResultDigest::of_error(&kind, &signature);
        for success in [&result, &signature, &kind, &format!("{kind}{signature}"), &write_document(&doc, &pen)] {
            prop_assert_ne!(ComparableResult::of(success, &[], Timestamp::default()).digest, error);
            prop_assert_ne!(ResultDigest::of_success(success), error);
        }
    }

    #[test]
    fn a_result_is_known_again_however_it_is_written(doc in doc(), one in pen(), other in pen()) {
        let text = |pen| write_document(&Doc::List(vec![doc.clone()]), pen);
        prop_assert!(text(&one).len() < json::BYTES_MAX);
        let digest = |pen| ComparableResult::of(&text(pen), &[], Timestamp::default()).digest;
        prop_assert_eq!(digest(&one), digest(&other));
    }
}
