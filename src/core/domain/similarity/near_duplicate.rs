//! Near duplicates: arguments that differ in spelling, or in settings that one of two calls omits.

use super::{
    ArgumentShape,
    packed_fields::{Field, LeafValue, TEXT_MAX},
};

/// Maximum number of omitted settings.
const OMITTED_MAX: usize = 2;

/// Differences of a near duplicate, by the paths of the leaves. At least one list is not empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NearDuplicate<'a> {
    /// Texts that differ in whitespace, case or punctuation alone.
    pub respelled: Vec<&'a str>,
    /// Settings that one of the calls omits: numbers, flags, texts of one word.
    pub omitted: Vec<&'a str>,
}

impl ArgumentShape {
    /// The differences, if these are spelling or at most two omitted settings. None for equal arguments, and where a
    /// text was truncated.
    #[must_use]
    pub fn near_duplicate_of<'a>(&'a self, other: &'a Self) -> Option<NearDuplicate<'a>> {
        let mut found = NearDuplicate::default();
        for pair in self.pairs(other) {
            match pair {
                (Some(a), Some(b)) if a.value == b.value && !is_cut(&a) => {}
                (Some(a), Some(b)) => {
                    let (one, other) = a.text().zip(b.text()).filter(|_| !is_cut(&a) && !is_cut(&b))?;
                    split_words(one).eq(split_words(other)).then(|| found.respelled.push(a.name()))?;
                }
                (Some(one), None) | (None, Some(one)) => {
                    (is_setting(&one) && found.omitted.len() < OMITTED_MAX).then(|| found.omitted.push(one.name()))?;
                }
                (None, None) => {}
            }
        }
        (found != NearDuplicate::default()).then_some(found)
    }
}

fn is_cut(field: &Field<'_>) -> bool {
    field.text().is_some_and(|text| text.len() >= TEXT_MAX)
}

/// True for a possible default value at a path outside lists.
fn is_setting(field: &Field<'_>) -> bool {
    let is_place = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_named = !field.name().is_empty() && !field.name().split('.').any(is_place);
    is_named
        && match field.value {
            LeafValue::Number(_) | LeafValue::Other(_) => true,
            LeafValue::Text(..) => field.text().is_some_and(|text| !text.trim().contains(char::is_whitespace)),
        }
}

/// Lowercase words of a text without punctuation. A mark before a digit stays, since 1.5 is not 15; so do marks that
/// change a word, as in C++ and C#.
fn split_words(text: &str) -> impl Iterator<Item = String> {
    let is_mark = |c: char| c.is_ascii_punctuation() && !"+#%$&@/\\*=<>|~^".contains(c) || "…–—‘’“”«»„".contains(c);
    let mut chars = text.chars().peekable();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        let counts = chars.peek().is_some_and(char::is_ascii_digit);
        if is_mark(c) && !counts { plain.push(' ') } else { plain.extend(c.to_lowercase()) }
    }
    plain.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_differences(a: &str, b: &str) -> Option<(Vec<String>, Vec<String>)> {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let (a, b) = (ArgumentShape::of(a), ArgumentShape::of(b));
        let found = a.near_duplicate_of(&b).map(|found| (owned(found.respelled), owned(found.omitted)));
        let back = b.near_duplicate_of(&a).map(|found| (owned(found.respelled), owned(found.omitted)));
        assert_eq!(found, back);
        found
    }

    #[test]
    fn spelling_and_settings_left_out_are_named() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (a, b, respelled, omitted) in [
            (r#"{"title":"Q3 report"}"#, r#"{"title":"q3  Report."}"#, &["title"][..], &[][..]),
            (r#"{"title":"Hello, world"}"#, r#"{"title":"hello world!"}"#, &["title"], &[]),
            (r#"{"title":"Q3 report"}"#, r#"{"title":"Q3 report","notify":false}"#, &[], &["notify"]),
            (r#"{"to":{"name":"Ann Lee"}}"#, r#"{"to":{"name":"ann lee"},"format":"pdf"}"#, &["to.name"], &["format"]),
        ] {
            assert_eq!(find_differences(a, b), Some((names(respelled), names(omitted))), "{a} {b}");
        }
    }

    #[test]
    fn other_words_numbers_and_long_texts_are_other_arguments() {
        let long = |end: &str| format!(r#"{{"title":"A b","text":"{}{end}"}}"#, "x".repeat(2_000));
        for (a, b) in [
            (r#"{"title":"Q3 report"}"#, r#"{"title":"Q3 report"}"#),
            (r#"{"title":"Q3 report"}"#, r#"{"title":"Q4 report"}"#),
            (r#"{"title":"costs 1.5 more"}"#, r#"{"title":"costs 15 more"}"#),
            (r#"{"title":"room 1, 2"}"#, r#"{"title":"room 12"}"#),
            (r#"{"title":"learn C++"}"#, r#"{"title":"learn C"}"#),
            (r#"{"title":"Q3 report","cents":1}"#, r#"{"title":"q3 report","cents":2}"#),
            (r#"{"title":"Q3 report"}"#, r#"{"title":"Q3 report","body":"two words"}"#),
            (r#"{"to":["ann@a.com"]}"#, r#"{"to":["ann@a.com","bob@a.com"]}"#),
            (r#"{"title":"Q3 report"}"#, r#"{"title":"Q3 report","a":1,"b":2,"c":3}"#),
            (&long("1"), &long("2")),
            (&long("1"), &long("2").replace("A b", "a b")),
        ] {
            assert_eq!(find_differences(a, b), None, "{a} {b}");
        }
    }
}
