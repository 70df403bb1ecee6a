//! Normalisers: one form for values that mean the same, so that the same call is known again (semantics.md section 5).
//! Each is total and idempotent: what it cannot read stays as it was, and applying it twice is applying it once. They
//! are for recognition only; what executes is never changed by them.

mod dates;
mod places;

use std::collections::BTreeMap;

use phonenumber::{Mode, country};
use serde_json::Value;

use super::form::nearest;
use crate::domain::json::{self, Json};

/// One form for values that mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalizer {
    /// A text that is an integer becomes one; a number without a fraction is one already.
    ToInt,
    /// A text that is a number becomes one.
    ToNumber,
    /// `true`, `yes`, `on`, `1` and their opposites, in any case.
    ToBool,
    /// Upper case.
    ToUpper,
    /// Lower case.
    ToLower,
    /// Without white space at the ends.
    Trim,
    /// Trimmed, and every stretch of white space one space.
    CollapseWhitespace,
    /// A phone number as `+15550199`; one without a country code is read in the region. Whether the number is assigned
    /// to anybody is not asked: only its digits count.
    E164(Option<country::Id>),
    /// A day as `2026-11-20`.
    IsoDate,
    /// An instant as `2026-11-20T08:00:00Z`; one without a zone is read as UTC.
    IsoDatetimeUtc,
    /// An e-mail address in lower case, trimmed, without `mailto:`. By its standard the local part could differ in
    /// case; no provider lets it.
    Email,
    /// A URL with its scheme and host in lower case, without a default port, fragment, or dot segments.
    Url,
    /// A list as a set: sorted, each member once.
    Sort,
    /// A path without `.`, `..` and doubled slashes.
    Path,
}

/// Every normaliser by its name in the policy; `e164` may name a region, as in `e164(US)`.
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

impl Normalizer {
    /// The normaliser of that name. `region` is where phone numbers without a country code are, unless the name says.
    ///
    /// # Errors
    /// What is wrong with the name, and what was probably meant.
    pub fn parse(name: &str, region: Option<&str>) -> Result<Self, String> {
        let (name, own) = match name.strip_suffix(')').and_then(|name| name.split_once('(')) {
            Some((name, region)) => (name, Some(region)),
            None => (name, None),
        };
        let found = NAMES.iter().find(|(known, _)| *known == name).map(|(_, normalizer)| *normalizer);
        match (found, own) {
            (Some(Self::E164(_)), _) => {
                let region = own.or(region).map(|region| {
                    region.parse().map_err(|_| format!("{region} is no region for e164; give one like US or DE"))
                });
                Ok(Self::E164(region.transpose()?))
            }
            (Some(_), Some(_)) => Err(format!("{name} takes no region")),
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

    /// Does it fit a field of that JSON Schema? One without a `type` may hold anything.
    ///
    /// # Errors
    /// Why it does not.
    pub fn fits(self, schema: Option<&Value>) -> Result<(), String> {
        let Some(kind) = schema.and_then(|schema| schema.get("type")) else { return Ok(()) };
        let kinds: Vec<&str> = match kind {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => return Ok(()),
        };
        let wanted: &[&str] = match self {
            Self::ToInt | Self::ToNumber => &["integer", "number", "string", "array"],
            Self::ToBool => &["boolean", "integer", "string", "array"],
            Self::Sort => &["array"],
            _ => &["string", "array"],
        };
        if kinds.iter().any(|kind| wanted.contains(kind)) {
            return Ok(());
        }
        Err(format!("does not fit: the schema says {}, and it takes {}", kinds.join(" or "), wanted.join(", ")))
    }

    /// The value in its one form. A list is taken member by member, but by `sort`.
    #[must_use]
    pub fn apply(self, value: &Json) -> Json {
        match (self, value) {
            (Self::Sort, Json::Array(items)) => sorted(items),
            (_, Json::Array(items)) => Json::Array(items.iter().map(|item| self.apply(item)).collect()),
            (_, Json::String(text)) => self.read(text).unwrap_or_else(|| value.clone()),
            (Self::ToBool, Json::Number(number)) if number == "1" => Json::Bool(true),
            (Self::ToBool, Json::Number(number)) if number == "0" => Json::Bool(false),
            _ => value.clone(),
        }
    }

    fn read(self, text: &str) -> Option<Json> {
        let string = |text: String| Some(Json::String(text));
        match self {
            Self::ToInt => number(text).filter(|number| !number.contains(['.', 'e'])).map(Json::Number),
            Self::ToNumber => number(text).map(Json::Number),
            Self::ToBool => match text.trim().to_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Some(Json::Bool(true)),
                "false" | "no" | "off" | "0" => Some(Json::Bool(false)),
                _ => None,
            },
            Self::ToUpper => string(text.to_uppercase()),
            Self::ToLower => string(text.to_lowercase()),
            Self::Trim => string(text.trim().to_owned()),
            Self::CollapseWhitespace => string(text.split_whitespace().collect::<Vec<_>>().join(" ")),
            Self::E164(region) => {
                let number = phonenumber::parse(region, text).ok()?;
                string(number.format().mode(Mode::E164).to_string())
            }
            Self::IsoDate => dates::day(text).map(Json::String),
            Self::IsoDatetimeUtc => dates::instant(text).map(Json::String),
            Self::Email => string(places::email(text)),
            Self::Url => places::url(text).map(Json::String),
            Self::Path => string(places::path(text)),
            Self::Sort => None,
        }
    }
}

/// The canonical form of a text that is a JSON number, perhaps with a plus or zeros in front. A comma could part
/// thousands or decimals: nobody guesses.
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

fn sorted(items: &[Json]) -> Json {
    let mut items: Vec<(String, &Json)> = items.iter().map(|item| (item.canonical(), item)).collect();
    items.sort_by(|a, b| a.0.cmp(&b.0));
    items.dedup_by(|a, b| a.0 == b.0);
    Json::Array(items.into_iter().map(|(_, item)| item.clone()).collect())
}

/// The part of a tool's arguments by which its calls are known again, and its form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Canonical {
    /// Paths; none is every field.
    fields: Vec<Vec<String>>,
    normalizers: Vec<(Vec<String>, Normalizer)>,
}

impl Canonical {
    /// The form that these fields (dotted paths; none is all) have after these normalisers ran.
    #[must_use]
    pub fn new(fields: &[String], normalizers: BTreeMap<String, Normalizer>) -> Self {
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        Self {
            fields: fields.iter().map(|field| path(field)).collect(),
            normalizers: normalizers.into_iter().map(|(field, normalizer)| (path(&field), normalizer)).collect(),
        }
    }

    /// The canonical text of arguments. Without fields and normalisers it is that of the arguments as they are.
    #[must_use]
    pub fn text(&self, arguments: &Json) -> String {
        let mut value = if self.fields.is_empty() {
            arguments.clone()
        } else {
            let mut kept = Json::Object(Vec::new());
            for path in &self.fields {
                if let Some(member) = path.iter().try_fold(arguments, |at, step| at.get(step)) {
                    put(&mut kept, path, member.clone());
                }
            }
            kept
        };
        for (path, normalizer) in &self.normalizers {
            change(&mut value, path, *normalizer);
        }
        value.canonical()
    }
}

fn change(value: &mut Json, path: &[String], normalizer: Normalizer) {
    match (path.split_first(), value) {
        (None, value) => *value = normalizer.apply(value),
        (Some(_), Json::Array(items)) => items.iter_mut().for_each(|item| change(item, path, normalizer)),
        (Some((step, rest)), Json::Object(members)) => {
            members
                .iter_mut()
                .filter(|(name, _)| name == step)
                .for_each(|(_, member)| change(member, rest, normalizer));
        }
        _ => {}
    }
}

/// Puts a member at its path into an object whose members are sorted as RFC 8785 sorts them.
fn put(object: &mut Json, path: &[String], value: Json) {
    let (Json::Object(members), Some((step, rest))) = (object, path.split_first()) else { return };
    let at = members.iter().position(|(name, _)| name == step).unwrap_or_else(|| {
        let place = members.partition_point(|(name, _)| name.encode_utf16().lt(step.encode_utf16()));
        members.insert(place, (step.clone(), Json::Object(Vec::new())));
        place
    });
    if rest.is_empty() {
        members[at].1 = value;
    } else {
        put(&mut members[at].1, rest, value);
    }
}

#[cfg(test)]
mod tests;
