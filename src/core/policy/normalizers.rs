//! Normalizers: one form for equivalent values, so that equal calls have one fingerprint
//! (docs/semantics.md#canonicalization). Each is total and idempotent: a value that it cannot parse stays. They serve
//! fingerprints only and never change executed arguments. In doubt a value stays: a missed duplicate costs one call, a
//! false one gives a wrong answer.

mod addresses;
mod canonical;
mod dates;
mod phones;

pub use canonical::Canonical;
use phonenumber::country;
use serde_json::Value;

use crate::{
    domain::json::{self, Json},
    rules::condition::nearest,
};

/// Normalizer of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalizer {
    /// Integer from a text, `"007"` and `"5.0"` included; not `"1,000"`, whose comma may be a decimal separator.
    ToInt,
    /// Number from a text.
    ToNumber,
    /// Boolean from `true`, `yes`, `on`, `1` and their opposites, in any case.
    ToBool,
    /// Upper case.
    ToUpper,
    /// Lower case.
    ToLower,
    /// Without leading and trailing whitespace.
    Trim,
    /// Trimmed, and every run of whitespace replaced by one space.
    CollapseWhitespace,
    /// A phone number as `+15550199`; one without a country code is read in the region. Only its digits count, not
    /// whether it is assigned. One with an extension stays.
    E164(Option<country::Id>),
    /// A day as `2026-11-20`; of an instant in its own zone. The order of day and month is never guessed.
    IsoDate,
    /// An instant as `2026-11-20T08:00:00Z`; without a zone in UTC, a day as its beginning.
    IsoDatetimeUtc,
    /// An e-mail address in lowercase, trimmed, without `mailto:`. The standard allows case differences in the local
    /// part; no provider does.
    Email,
    /// A URL with its scheme and host in lowercase, without a default port, fragment or dot segments, and with letters
    /// and digits unescaped. Query pairs keep their order.
    Url,
    /// A list as a set: sorted, each member once.
    Sort,
    /// A path without `.`, `..`, doubled slashes, and a slash at its end.
    Path,
}

/// Normalizers by name in the policy; `e164` may name a region: `e164(US)`.
const NAMES: [(&str, Normalizer); 14] = [
    ("to_int", Normalizer::ToInt),
    ("to_number", Normalizer::ToNumber),
    ("to_bool", Normalizer::ToBool),
    ("to_upper", Normalizer::ToUpper),
    ("to_lower", Normalizer::ToLower),
    ("trim", Normalizer::Trim),
    ("collapse_whitespace", Normalizer::CollapseWhitespace),
    ("e164", Normalizer::E164(None)),
    ("iso_date", Normalizer::IsoDate),
    ("iso_datetime_utc", Normalizer::IsoDatetimeUtc),
    ("email", Normalizer::Email),
    ("url", Normalizer::Url),
    ("sort", Normalizer::Sort),
    ("path", Normalizer::Path),
];

/// Maximum case mappings of one text until it is stable; a few letters need two.
const CASES_MAX: usize = 4;

impl Normalizer {
    /// The normalizer of that name. `region` is the default region of phone numbers.
    ///
    /// # Errors
    /// The problem of the name, and the probable intention.
    pub fn parse(name: &str, region: Option<&str>) -> Result<Self, String> {
        let (name, own) = match name.strip_suffix(')').and_then(|name| name.split_once('(')) {
            Some((name, region)) => (name.trim(), Some(region)),
            None => (name, None),
        };
        let found = NAMES.iter().find(|(known, _)| *known == name).map(|(_, normalizer)| *normalizer);
        match (found, own) {
            (Some(Self::E164(_)), _) => {
                let region = own.or(region).map(|region| {
                    let id = region.trim().to_ascii_uppercase().parse();
                    id.map_err(|_| format!("{region} is no region for e164; give one like US or DE"))
                });
                Ok(Self::E164(region.transpose()?))
            }
            (Some(_), Some(_)) => Err(format!("{name} takes no region; write {name}")),
            (Some(normalizer), None) => Ok(normalizer),
            (None, _) => {
                let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
                Err(match nearest(name, &names) {
                    Some(meant) => format!("{name} is no normaliser; did you mean {meant}?"),
                    None => format!("{name} is no normaliser; there are {}", names.join(", ")),
                })
            }
        }
    }

    /// Its name in the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        let same = |known: Self| std::mem::discriminant(&known) == std::mem::discriminant(&self);
        NAMES.iter().find(|(_, known)| same(*known)).map_or("", |(name, _)| name)
    }

    /// Checks it against a field's JSON Schema. A schema without `type` fits. Of `anyOf` and `oneOf` one branch is
    /// enough; of a list its members count, except for `sort`.
    ///
    /// # Errors
    /// The reason of the mismatch.
    pub fn fits(self, schema: Option<&Value>) -> Result<(), String> {
        let kinds = schema.and_then(|schema| kinds_of(schema, self != Self::Sort));
        let Some(kinds) = kinds else { return Ok(()) };
        let wanted: &[&str] = match self {
            Self::ToInt | Self::ToNumber => &["integer", "number", "string"],
            Self::ToBool => &["boolean", "integer", "number", "string"],
            Self::E164(_) => &["string", "integer"],
            Self::Sort => &["array"],
            _ => &["string"],
        };
        if kinds.iter().any(|kind| wanted.contains(kind)) {
            return Ok(());
        }
        let (name, wanted) = (self.name(), wanted.join(", "));
        Err(format!("does not fit: the schema says {}, and {name} takes {wanted}", kinds.join(" or ")))
    }

    /// The normalized value. A list is normalized member by member, except by `sort`.
    #[must_use]
    pub fn apply(self, value: &Json) -> Json {
        match (self, value) {
            (Self::Sort, Json::Array(items)) => sort_items(items),
            (_, Json::Array(items)) => Json::Array(items.iter().map(|item| self.apply(item)).collect()),
            (_, Json::String(text)) => self.read(text).unwrap_or_else(|| value.clone()),
            (Self::ToBool, Json::Number(number)) if number == "1" => Json::Bool(true),
            (Self::ToBool, Json::Number(number)) if number == "0" => Json::Bool(false),
            (Self::E164(region), Json::Number(number)) => {
                phones::e164(number, region).map_or_else(|| value.clone(), Json::String)
            }
            _ => value.clone(),
        }
    }

    fn read(self, text: &str) -> Option<Json> {
        match self {
            Self::ToInt => number(text).filter(|number| !number.contains(['.', 'e'])).map(Json::Number),
            Self::ToNumber => number(text).map(Json::Number),
            Self::ToBool => match text.trim().to_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Some(Json::Bool(true)),
                "false" | "no" | "off" | "0" => Some(Json::Bool(false)),
                _ => None,
            },
            Self::ToUpper => fold_case(text, str::to_uppercase),
            Self::ToLower => fold_case(text, str::to_lowercase),
            Self::Trim => Some(Json::String(text.trim().to_owned())),
            Self::CollapseWhitespace => Some(Json::String(text.split_whitespace().collect::<Vec<_>>().join(" "))),
            Self::E164(region) => phones::e164(text, region).map(Json::String),
            Self::IsoDate => dates::day(text).map(Json::String),
            Self::IsoDatetimeUtc => dates::instant(text).map(Json::String),
            Self::Email => fold_case(&addresses::email(text)?, str::to_lowercase),
            Self::Url => addresses::url(text).map(Json::String),
            Self::Path => Some(Json::String(addresses::path(text))),
            Self::Sort => None,
        }
    }
}

/// The types of a schema; none if open.
fn kinds_of(schema: &Value, members: bool) -> Option<Vec<&str>> {
    let mut kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => {
            let branches = schema.get("anyOf").or(schema.get("oneOf"))?.as_array()?;
            let kinds: Option<Vec<_>> = branches.iter().map(|branch| kinds_of(branch, members)).collect();
            kinds?.into_iter().flatten().collect()
        }
    };
    if members && kinds.contains(&"array") {
        kinds.retain(|kind| *kind != "array");
        kinds.extend(kinds_of(schema.get("items")?, members)?);
    }
    Some(kinds)
}

/// The canonical form of a text that is a JSON number, a plus or leading zeros allowed. A comma is ambiguous, so such a
/// text stays.
fn number(text: &str) -> Option<String> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let stripped = digits.trim_start_matches('0');
    let digits = match stripped.chars().next() {
        Some(first) if first.is_ascii_digit() => stripped.to_owned(),
        _ if digits.starts_with('0') => format!("0{stripped}"),
        _ => return None,
    };
    match json::parse(&format!("{sign}{digits}")) {
        Ok(Json::Number(number)) => Some(number),
        _ => None,
    }
}

/// The text in one case, mapped until stable.
fn fold_case(text: &str, case: fn(&str) -> String) -> Option<Json> {
    let mut text = text.to_owned();
    for _ in 0..CASES_MAX {
        let after = case(&text);
        if after == text {
            return Some(Json::String(text));
        }
        text = after;
    }
    None
}

fn sort_items(items: &[Json]) -> Json {
    let mut items: Vec<(String, &Json)> = items.iter().map(|item| (item.canonical(), item)).collect();
    items.sort_by(|a, b| a.0.cmp(&b.0));
    items.dedup_by(|a, b| a.0 == b.0);
    Json::Array(items.into_iter().map(|(_, item)| item.clone()).collect())
}

#[cfg(test)]
mod tests;
