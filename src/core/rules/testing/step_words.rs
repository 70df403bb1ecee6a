//! Parser of a step's words: options, numbers, amounts, durations.

use crate::domain::{call::AddedParameters, ids::ParameterName};

use super::stage::Step;

#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) call_id: Option<String>,
    pub(super) key: Option<String>,
    pub(super) tokens: u64,
    pub(super) cost_micros: Option<u64>,
    pub(super) after_ms: Option<u64>,
    pub(super) repeat: bool,
    pub(super) is_sent: bool,
    pub(super) is_by_operator: bool,
    pub(super) because: Option<String>,
    pub(super) sayable: Option<Box<AddedParameters>>,
    pub(super) phase: Option<String>,
    pub(super) witness: Option<Box<str>>,
}

impl Options {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word {
                "as" => options.call_id = Some(value().to_owned()),
                "key" => options.key = Some(value().to_owned()),
                "tokens" => options.tokens = number(value())?,
                "cost" => options.cost_micros = Some(micros(value())?),
                "after" => options.after_ms = Some(duration(value())?),
                "repeat" => options.repeat = true,
                "sent" => options.is_sent = true,
                "by_operator" => options.is_by_operator = true,
                "because" => options.because = Some(value().to_owned()),
                "sayable" => {
                    let name = |name| ParameterName::parse("parameter", name).ok();
                    let sayable =
                        AddedParameters { justification: name("justification"), repeat: name("repeat_intended") };
                    options.sayable = Some(Box::new(sayable));
                }
                "witness" => options.witness = Some(value().into()),
                "in" => options.phase = Some(value().to_owned()),
                "warning" | "critical" | "break" => {
                    let _ = (words.next(), words.next());
                }
                _ => {}
            }
        }
        Ok(options)
    }
}

pub(super) fn matching_brace(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return text.starts_with('{').then_some(i);
        }
    }
    None
}

pub(super) fn require_known(is: bool, what: &str, name: &str) -> Step {
    if is { Ok(()) } else { Err(format!("unknown {what} {name}")) }
}

/// A number as a word: what differs in it differs in more than a number.
pub(super) fn letters(mut n: u64) -> String {
    let mut word = String::new();
    loop {
        word.push(char::from(b'a' + (n % 26) as u8));
        n /= 26;
        if n == 0 {
            return word;
        }
    }
}

/// `$n` is a fresh number, and `$u` a fresh UUID.
pub(super) fn fill_numbers(text: &str, n: u64) -> String {
    text.replace("$n", &n.to_string()).replace("$u", &format!("550e8400-e29b-41d4-a716-{n:012}"))
}

pub(super) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

pub(super) fn micros(text: &str) -> Result<u64, String> {
    let dollars: f64 = text.parse().map_err(|_| format!("{text:?} is not an amount"))?;
    Ok((dollars * 1_000_000.0).round() as u64)
}

pub(super) fn duration(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| format!("{text:?} has no unit"))?;
    let amount = number(&text[..at])?;
    let unit = match &text[at..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        unit => return Err(format!("{unit:?} is not a unit")),
    };
    Ok(amount * unit)
}

/// A result of several words: JSON, or a text in quotes.
pub(super) fn whole(text: &str) -> Option<String> {
    let text = text.trim();
    let end = match text.chars().next()? {
        '{' => text.rfind('}')?,
        '[' => text.rfind(']')?,
        '"' => return Some(text.get(1..text.rfind('"')?)?.to_owned()),
        _ => return None,
    };
    Some(text[..=end].to_owned())
}
