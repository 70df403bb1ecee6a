//! Analysis of descriptions: sentences, usage conditions, and token cost.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Compiles a constant pattern; each has a test.
pub(super) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern")
}

static WHEN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\buse (this|it|the tool|this (tool|function|one))? ?(only )?",
        r"(when|if|to|for|after|before|once|whenever)\b",
        r"|\b(call|invoke) (this|it|only|this (tool|function)|the tool)? ?(only )?(when|if|after|before|once|to)\b",
        r"|\b(when|if) the (user|customer|caller|person|agent)\b|\bwhen (you|asked)\b",
        r"|\bonly \w+ (if|when|after|to)\b|\bonly (use|call|when|if|after)\b",
        r"|\b(should|must|can|may) be (used|called)\b",
        r"|\b(useful|intended|meant|suitable|prefer(red)?) (for|when|if|to)\b|\bprefer (this|it)\b",
    ))
});

static WHEN_NOT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(do not|don['’]t|never|not to|must not|should not|cannot|can['’]t|avoid) (be )?",
        r"(use|using|used|call|calling|called|invoke)\b",
        r"|\bnot (for|intended|meant|suitable|when|if)\b|\binstead\b|\brather than\b|\bunless\b",
        r"|\bonly (use|call|when|if|after)\b|\buse (this |it )?only\b",
    ))
});

/// True when a text contains a condition for using its tool.
pub(super) fn says_when(text: &str) -> bool {
    WHEN.is_match(text)
}

/// True when a text contains a condition against using its tool.
pub(super) fn says_when_not(text: &str) -> bool {
    WHEN_NOT.is_match(text)
}

/// True when a text contains the whole name of a tool as a word.
pub(super) fn mentions(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
}

/// The sentences and lines of a text.
pub(super) fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let ends = matches!(c, '.' | '!' | '?') && next.is_none_or(char::is_whitespace) && !abbreviates(&text[..at]);
        if ends || c == '\n' {
            sentences.push(text[start..at + c.len_utf8()].trim());
            start = at + c.len_utf8();
        }
    }
    sentences.push(text[start..].trim());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

/// True after `e.g` and the like, where the dot ends no sentence.
fn abbreviates(text: &str) -> bool {
    let word = text.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    matches!(word.to_ascii_lowercase().as_str(), "e.g" | "i.e" | "etc" | "vs" | "approx" | "no")
}

/// The first sentence without its end: the purpose of a tool.
pub(super) fn first_sentence(text: &str) -> &str {
    sentences(text).first().map_or("", |sentence| sentence.trim_end_matches(['.', '!', '?']))
}

/// The string of a schema's keyword; empty without one.
pub(super) fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Tokens of a text in o200k, the encoding of OpenAI's newer models; other models' counts differ by some ten percent.
pub(super) fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}

/// `a`, `a and b`, `a, b and c`, each in backticks.
pub(super) fn list_names<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// `an order`, `a user`.
pub(super) fn article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_readers_stop() {
        let text = "Cancels an order, e.g. one (no. 3) of v1.5. Use when asked!\n- Not for refunds\n\nEnd";
        let expected = ["Cancels an order, e.g. one (no. 3) of v1.5.", "Use when asked!", "- Not for refunds", "End"];
        assert_eq!(sentences(text), expected);
        assert_eq!(first_sentence("Pays. Twice."), "Pays");
    }

    #[test]
    fn when_and_when_not_are_told_in_many_ways() {
        for (text, when, when_not) in [
            ("Cancels an order.", false, false),
            ("USE WHEN the user asks. DO NOT USE for refunds.", true, true),
            ("Use this tool to cancel; use `refund` instead for money.", true, true),
            ("Should be called after get_order.", true, false),
            ("Only call when confirmed.", true, true),
            ("Don't call it twice.", false, true),
            ("Users of a team.", false, false),
            ("Only transfer if the user asks.", true, false),
        ] {
            assert_eq!((says_when(text), says_when_not(text)), (when, when_not), "{text}");
        }
    }

    #[test]
    fn a_name_is_a_whole_word() {
        assert!(mentions("See `get_order`.", "get_order"));
        assert!(!mentions("See get_orders, forget_order.", "get_order"));
        assert_eq!(list_names(&["a", "b", "c"]), "`a`, `b` and `c`");
        assert_eq!(article("order"), "an order");
    }

    #[test]
    fn tokens_are_counted_as_models_count_them() {
        for hostile in [" ", "a", "\n", "🤝", "1"].map(|text| text.repeat(16_384) + "x") {
            assert!(tokens(&hostile) > 100);
        }
        assert_eq!(tokens(""), 0);
        assert_eq!(tokens("Cancels an order. Use when the user asks to cancel."), 13);
    }
}
