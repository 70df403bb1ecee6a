//! Content class of arguments: composed text or payment data, or bare selections and positions.

use super::json::Json;

/// Amount of content in arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Content {
    /// Fewer than two values, not counting booleans and screen positions.
    #[default]
    Bare,
    /// Two values or more.
    Plain,
    /// A text of two words or more, a telephone number, an account, or an amount beside its currency.
    Written,
}

/// Maximum number of values that are read; further ones are ignored.
const VALUES_MAX: usize = 500;
/// Keys of positions on a screen or a page: clicks and scrolls have no content.
const PLACES: [&str; 22] = [
    "x",
    "y",
    "x1",
    "y1",
    "x2",
    "y2",
    "coordinate",
    "coordinates",
    "position",
    "ref",
    "index",
    "element",
    "selector",
    "xpath",
    "tab",
    "tabid",
    "tab_id",
    "uid",
    "direction",
    "delta_x",
    "delta_y",
    "button",
];
/// Words of members that hold a currency.
const CURRENCY: &str = "currency";
/// Currencies of most payments, and the most used signs.
const CURRENCIES: [&str; 24] = [
    "usd", "eur", "gbp", "jpy", "cny", "chf", "cad", "aud", "nzd", "sek", "nok", "dkk", "pln", "czk", "huf", "inr",
    "brl", "mxn", "zar", "sgd", "hkd", "krw", "try", "ils",
];
const SIGNS: [char; 4] = ['$', '€', '£', '¥'];

#[derive(Default)]
struct ContentScan {
    values: usize,
    counted: usize,
    is_written: bool,
    has_amount: bool,
    has_currency: bool,
    has_line_break: bool,
}

/// The content class of arguments.
#[must_use]
pub fn of(arguments: &Json) -> Content {
    let mut seen = ContentScan::default();
    seen.value("", arguments);
    match () {
        () if seen.is_written || seen.has_amount && seen.has_currency => Content::Written,
        () if seen.counted >= 2 => Content::Plain,
        () => Content::Bare,
    }
}

/// True where a text of several lines is among the arguments.
#[must_use]
pub fn has_lines(arguments: &Json) -> bool {
    let mut seen = ContentScan::default();
    seen.value("", arguments);
    seen.has_line_break
}

/// The numbers that arguments hold, also as texts.
#[must_use]
pub fn amounts(arguments: &Json) -> Vec<f64> {
    let mut found = Vec::new();
    add_amounts(arguments, &mut found);
    found
}

fn add_amounts(value: &Json, found: &mut Vec<f64>) {
    let mut add = |text: &str| found.extend(text.parse::<f64>().ok().filter(|n| n.is_finite()).map(f64::abs));
    match value {
        Json::Number(text) => add(text),
        Json::String(text) if text.len() <= 32 => {
            add(text.trim_matches(|c: char| !c.is_ascii_digit() && c != '.').split(' ').next().unwrap_or_default());
        }
        Json::Array(items) => items.iter().take(VALUES_MAX).for_each(|item| add_amounts(item, found)),
        Json::Object(members) => members.iter().take(VALUES_MAX).for_each(|(_, value)| add_amounts(value, found)),
        _ => {}
    }
}

impl ContentScan {
    fn value(&mut self, key: &str, value: &Json) {
        self.values += 1;
        if self.values > VALUES_MAX {
            return;
        }
        match value {
            Json::Null | Json::Bool(_) => {}
            Json::Array(items) => items.iter().for_each(|item| self.value(key, item)),
            Json::Object(members) => members.iter().for_each(|(name, value)| self.value(name, value)),
            _ if is_place(key) => {}
            Json::Number(_) => {
                self.counted += 1;
                self.has_amount = true;
            }
            Json::String(text) => {
                self.counted += usize::from(!text.trim().is_empty());
                self.text(key, text.trim());
            }
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        let is_amount = text.parse::<f64>().is_ok();
        self.has_amount |= is_amount;
        self.has_currency |= is_currency(text) || key.to_ascii_lowercase().contains(CURRENCY);
        self.has_line_break |= text.contains('\n');
        let has_digit = || text.bytes().any(|b| b.is_ascii_digit());
        self.is_written |= text.split_whitespace().nth(1).is_some()
            || is_telephone(text)
            || is_account(text)
            || text.contains(SIGNS) && has_digit();
    }
}

fn is_place(key: &str) -> bool {
    PLACES.iter().any(|place| place.eq_ignore_ascii_case(key))
}

fn is_currency(text: &str) -> bool {
    CURRENCIES.iter().any(|currency| currency.eq_ignore_ascii_case(text))
}

/// `+49…` or `0049…`.
fn is_telephone(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('+').or_else(|| text.strip_prefix("00")) else { return false };
    (7..=20).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'(' | b')'))
}

/// An IBAN: a country, two digits, and up to thirty letters and digits.
fn is_account(text: &str) -> bool {
    let bytes = text.as_bytes();
    (15..=34).contains(&bytes.len())
        && bytes[..2].iter().all(u8::is_ascii_uppercase)
        && bytes[2..4].iter().all(u8::is_ascii_digit)
        && bytes[4..].iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::parse;

    #[test]
    fn content_is_what_somebody_wrote() {
        for (arguments, content) in [
            ("{}", Content::Bare),
            (r#"{"queue":"mail"}"#, Content::Bare),
            (r#"{"queue":"mail","all":true}"#, Content::Bare),
            (r#"{"queue":"mail","worker":"w1"}"#, Content::Plain),
            (r#"{"x":10,"y":20,"button":"left"}"#, Content::Bare),
            (r#"{"coordinate":[10,20],"text":"a"}"#, Content::Bare),
            (r#"{"title":"Q3 report"}"#, Content::Written),
            (r#"{"doc":{"body":[{"text":"two words"}]}}"#, Content::Written),
            (r#"{"to":"+4915112345678"}"#, Content::Written),
            (r#"{"to":"DE02120300000000202051"}"#, Content::Written),
            (r#"{"amount":2000,"currency":"usd"}"#, Content::Written),
            (r#"{"value":"25.00","currency_code":"EUR"}"#, Content::Written),
            (r#"{"price":"$25"}"#, Content::Written),
            (r#"{"amount":2000,"unit":"px"}"#, Content::Plain),
        ] {
            assert_eq!(of(&parse(arguments).unwrap()), content, "{arguments}");
        }
    }

    #[test]
    fn amounts_are_numbers_also_in_texts() {
        let arguments = parse(r#"{"a":25,"b":"12.50 EUR","c":["$7"],"d":"two words","e":"-3"}"#).unwrap();
        assert_eq!(amounts(&arguments), [25.0, 12.5, 7.0, 3.0]);
    }
}
