//! Amount in a call's arguments, found by the names of arguments: it orders approval requests and bounds bulk approval.

use super::{
    json::{self, Json},
    redaction,
};

/// Maximum length of arguments that are read, in bytes.
const READ_BYTES_MAX: usize = 20_000;
/// Maximum length of a name that is read, in bytes; a longer one counts as that of an amount.
const NAME_BYTES_MAX: usize = 100;
/// Words of an argument's name that make it an amount.
const AMOUNT_WORDS: [&str; 7] = ["amount", "price", "total", "sum", "cents", "cost", "fee"];
/// Words that make it none, whatever else is in the name.
const OTHER_WORDS: [&str; 9] = ["id", "ids", "currency", "count", "pages", "code", "type", "unit", "number"];
/// Words of names whose numbers identify something.
const ID_WORDS: [&str; 4] = ["id", "ids", "number", "no"];

/// What the names above a value say of it.
#[derive(Debug, Clone, Copy, Default)]
struct Naming {
    /// A name above is that of an amount, and none below that one makes it something else.
    is_amount: bool,
    /// A name above is that of an amount.
    may_be_amount: bool,
    /// The innermost name is that of an id.
    is_id: bool,
}

impl Naming {
    fn below(self, name: &str) -> Self {
        if name.len() > NAME_BYTES_MAX {
            return Self { is_amount: true, may_be_amount: true, is_id: false };
        }
        let words = words(name);
        let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
        let is_amount = (self.is_amount || has(&AMOUNT_WORDS)) && !has(&OTHER_WORDS);
        let is_id = words.last().is_some_and(|last| ID_WORDS.contains(&last.as_str()));
        Self { is_amount, may_be_amount: self.may_be_amount || is_amount, is_id }
    }
}

/// The largest number of an argument that is named as an amount, or is within one, at any depth; none without one.
#[must_use]
pub fn find_amount(arguments: &str) -> Option<f64> {
    let read = parse(arguments)?;
    let mut found: Option<f64> = None;
    visit(Naming::default(), &read, &mut |naming, value| {
        let (Json::Number(text) | Json::String(text)) = value else { return };
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && naming.is_amount);
        found = [found, number].into_iter().flatten().reduce(f64::max);
    });
    found
}

/// False only for arguments that are known to hold no amount: each number in them identifies something, and no argument
/// is named as an amount or within one, is redacted, or cannot be read.
#[must_use]
pub fn may_have_amount(arguments: &str) -> bool {
    let Some(read) = parse(arguments) else { return true };
    let mut found = is_hash(&read) || !redaction::missing(arguments, 1).is_empty();
    visit(Naming::default(), &read, &mut |naming, value| {
        let has_number = match value {
            Json::Number(_) => true,
            Json::String(text) => text.contains(char::is_numeric),
            _ => false,
        };
        found |= naming.may_be_amount && !matches!(value, Json::Null) || has_number && !naming.is_id;
    });
    found
}

fn parse(arguments: &str) -> Option<Json> {
    (arguments.len() <= READ_BYTES_MAX).then(|| json::parse(arguments).ok()).flatten()
}

/// Arguments that are stored by their digest alone.
fn is_hash(arguments: &Json) -> bool {
    match arguments {
        Json::Object(members) => matches!(members.as_slice(), [(key, _)] if key == "sha256"),
        _ => true,
    }
}

/// Each leaf with what the names above it say.
fn visit(naming: Naming, value: &Json, leaf: &mut impl FnMut(Naming, &Json)) {
    match value {
        Json::Object(members) => members.iter().for_each(|(name, value)| visit(naming.below(name), value, leaf)),
        Json::Array(entries) => entries.iter().for_each(|entry| visit(naming, entry, leaf)),
        value => leaf(naming, value),
    }
}

/// The words of a name, in lower case: `totalAmount`, `total_amount` and `total-amount` have the same two.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_the_largest_number_of_an_argument_that_is_named_so() {
        for (arguments, amount) in [
            (r#"{"amount":5,"id":900}"#, Some(5.0)),
            (r#"{"order":{"totalAmount":"12.50","lines":[{"price":3},{"price":40.5}]}}"#, Some(40.5)),
            (r#"{"amount_cents":1200,"total_pages":9000}"#, Some(1_200.0)),
            (r#"{"price_id":"7","amount":null}"#, None),
            (r#"{"amount":"NaN"}"#, None),
            (r#"{"amount":{"value":100}}"#, Some(100.0)),
            (r#"{"id":7,"amount":{"value":"100.00","currency":"EUR","account_id":900}}"#, Some(100.0)),
            (r#"{"total":{"pages":{"last":9}}}"#, None),
            ("no JSON", None),
        ] {
            assert_eq!(find_amount(arguments), amount, "{arguments}");
        }
    }

    #[test]
    fn amount_is_excluded_only_where_every_argument_is_known() {
        for (arguments, may) in [
            (r#"{"id":7,"order_id":8,"note":"ok"}"#, false),
            ("{}", false),
            (r#"{"amount":"EUR 5"}"#, true),
            (r#"{"betrag":5,"id":7}"#, true),
            (r#"{"quantities":[3]}"#, true),
            (r#"{"id":7,"betrag":"500.00"}"#, true),
            (r#"{"id":7,"note":"pay EUR 500"}"#, true),
            (r#"{"id":7,"amount":{"value":"100.00","currency":"EUR"}}"#, true),
            (r#"{"amount":{"value":{"text":"all"}}}"#, true),
            (r#"{"amount":{"id":7}}"#, true),
            (r#"{"amount":[]}"#, false),
            (r#"{"order_id":"A-7"}"#, false),
            (r#"{"sha256":"00"}"#, true),
            ("no JSON", true),
        ] {
            assert_eq!(may_have_amount(arguments), may, "{arguments}");
        }
        assert!(may_have_amount(&format!(r#"{{"note":"{}"}}"#, "x".repeat(READ_BYTES_MAX))), "too long to be read");
    }
}
