//! Lossless coercion of values to the schema's type: usual mistakes of people and models, such as quoted numbers or a
//! missing list.
//!
//! | given | wanted | read as |
//! |---|---|---|
//! | a text that is a number, `true` or `false` | that | it |
//! | a number, `true`, `false` | a text | its text |
//! | a text that is a JSON object or list | that | it |
//! | one value | a list | the list of it |
//! | `null` | a field that may be missing | missing |
//!
//! Iterates until no remaining error can be fixed, because a coerced value may need coercion in turn.

use std::collections::BTreeMap;

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

use super::{ArgumentSchema, ERRORS_MAX, as_value, errors::by_nearness, messages};
use crate::domain::{
    json::{self, Json},
    violation::CoercedField,
};

/// Maximum rounds: values nested in texts.
const ROUNDS_MAX: usize = 16;
/// Maximum number of coerced values per call.
const COERCIONS_MAX: usize = 64;
/// Maximum number of reverted single-value lists.
const UNWRAPPED_MAX: usize = 8;
/// Maximum length of a text that is read as a fraction, in bytes: a double keeps 15 digits.
const FRACTION_MAX: usize = 16;
/// Types in the order of attempts.
const KINDS: [&str; 6] = ["boolean", "integer", "number", "string", "object", "array"];

/// A coerced value; `None` is missing.
type Read = Option<Json>;

impl ArgumentSchema {
    /// The coerced arguments, and the coerced fields.
    pub(super) fn coerce(&self, arguments: &Json) -> (Json, Vec<CoercedField>) {
        let mut kept = Vec::new();
        loop {
            let round = Coercions { schema: self, kept: &kept };
            let (read, coerced) = round.run(arguments);
            // A list of one value that does not fit either would only make the message harder to understand.
            let wrapped = |coerced: &CoercedValue| {
                (coerced.is_wrap && self.is_wrong(&read, &coerced.pointer)).then(|| coerced.pointer.clone())
            };
            let wrong: Vec<String> = coerced.iter().filter_map(wrapped).collect();
            if wrong.is_empty() || kept.len() >= UNWRAPPED_MAX {
                let mut fields: Vec<CoercedField> = coerced.into_iter().map(|coerced| coerced.field).collect();
                fields.sort_by(|a, b| a.field.cmp(&b.field));
                return (read, fields);
            }
            kept.extend(wrong);
        }
    }

    /// True for an error at the pointer or below.
    fn is_wrong(&self, arguments: &Json, pointer: &str) -> bool {
        let (value, _) = self.read(arguments);
        let mut errors = self.compiled.validator.iter_errors(&value).take(ERRORS_MAX);
        errors.any(|error| is_below(error.instance_path().as_str(), pointer))
    }
}

struct CoercedValue {
    pointer: String,
    is_wrap: bool,
    field: CoercedField,
}

struct Coercions<'a> {
    schema: &'a ArgumentSchema,
    /// Pointers of values that are not wrapped in a list.
    kept: &'a [String],
}

impl Coercions<'_> {
    fn run(&self, arguments: &Json) -> (Json, Vec<CoercedValue>) {
        let mut arguments = arguments.clone();
        let mut done: Vec<CoercedValue> = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let mut reads = BTreeMap::new();
            let (value, _) = self.schema.read(&arguments);
            for error in self.schema.compiled.validator.iter_errors(&value).take(ERRORS_MAX) {
                if let Some(found) = self.of_error(&arguments, &error) {
                    reads.extend(found);
                }
            }
            let before = done.len();
            for (pointer, read) in reads {
                let is_again =
                    done.iter().any(|done| done.pointer == pointer && done.field.to == text_of(read.as_ref()));
                if done.len() == COERCIONS_MAX || is_again {
                    continue;
                }
                done.extend(put_value(&mut arguments, pointer, read));
            }
            if done.len() == before {
                break;
            }
        }
        (arguments, done)
    }

    /// The fixes of an error, by pointer; none if there are none.
    fn of_error(&self, arguments: &Json, error: &ValidationError<'_>) -> Option<Vec<(String, Read)>> {
        let pointer = error.instance_path().as_str();
        let at = || reach(arguments, pointer);
        match error.kind() {
            ValidationErrorKind::Type { kind } => {
                let value = at()?;
                let read = if *value == Json::Null {
                    self.may_be_missing(arguments, pointer).then_some(None)?
                } else {
                    let is_kept = self.kept.iter().any(|kept| kept == pointer);
                    let kinds = kinds(kind);
                    let wanted = KINDS.iter().filter(|kind| kinds.iter().any(|wanted| wanted == *kind));
                    let read = wanted.clone().find_map(|kind| as_kind(value, kind));
                    let wrap = || kinds.iter().any(|kind| kind == "array").then(|| Json::Array(vec![value.clone()]));
                    Some(read.or_else(|| wrap().filter(|_| !is_kept))?)
                };
                Some(vec![(pointer.to_owned(), read)])
            }
            ValidationErrorKind::Enum { options } => {
                let read = as_option(at()?, options.as_array()?)?;
                Some(vec![(pointer.to_owned(), Some(read))])
            }
            ValidationErrorKind::Constant { expected_value } => {
                let read = as_option(at()?, std::slice::from_ref(&**expected_value))?;
                Some(vec![(pointer.to_owned(), Some(read))])
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                // A branch is chosen if all its errors can be fixed.
                let branch = |errors: &&[ValidationError<'_>]| -> Option<Vec<(String, Read)>> {
                    let reads: Option<Vec<_>> = errors.iter().map(|error| self.of_error(arguments, error)).collect();
                    reads.map(|reads| reads.into_iter().flatten().collect())
                };
                by_nearness(context, pointer).iter().find_map(branch)
            }
            _ => None,
        }
    }

    /// True for a null in place of an absent field.
    fn may_be_missing(&self, arguments: &Json, pointer: &str) -> bool {
        let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
        if !matches!(reach(arguments, parent), Some(Json::Object(_))) {
            return false;
        }
        let mut without = arguments.clone();
        without.remove(pointer);
        let name = plain(name);
        let value = as_value(&without);
        let is_missed = |error: &ValidationError<'_>| {
            let is_here = error.instance_path().as_str() == parent;
            is_here && matches!(error.kind(), ValidationErrorKind::Required { property } if *property == name.as_str())
        };
        !self.schema.compiled.validator.iter_errors(&value).take(ERRORS_MAX).any(|error| is_missed(&error))
    }
}

fn put_value(arguments: &mut Json, pointer: String, read: Read) -> Option<CoercedValue> {
    let steps: Vec<String> = pointer.split('/').skip(1).map(plain).collect();
    let at = reach_mut(arguments, &steps)?;
    let is_wrap = matches!(&read, Some(Json::Array(items)) if items.first() == Some(&*at));
    let (from, to) = (at.canonical(), text_of(read.as_ref()));
    match read {
        Some(read) => *at = read,
        None => arguments.remove(&pointer),
    }
    let field = CoercedField { field: messages::to_dotted_path(&pointer), from, to };
    Some(CoercedValue { pointer, is_wrap, field })
}

fn text_of(read: Option<&Json>) -> String {
    read.map_or_else(|| "absent".to_owned(), Json::canonical)
}

fn is_below(path: &str, pointer: &str) -> bool {
    path.strip_prefix(pointer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn plain(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

pub(super) fn reach<'a>(arguments: &'a Json, pointer: &str) -> Option<&'a Json> {
    pointer.split('/').skip(1).try_fold(arguments, |at, step| match at {
        Json::Object(_) => at.get(&plain(step)),
        Json::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

fn reach_mut<'a>(at: &'a mut Json, steps: &[String]) -> Option<&'a mut Json> {
    let Some((step, rest)) = steps.split_first() else { return Some(at) };
    match at {
        Json::Object(members) => {
            let member = members.iter_mut().find(|(name, _)| name == step)?;
            reach_mut(&mut member.1, rest)
        }
        Json::Array(items) => reach_mut(items.get_mut(step.parse::<usize>().ok()?)?, rest),
        _ => None,
    }
}

/// The value as that type, if lossless; never wrapped in a list.
pub(super) fn as_kind(value: &Json, kind: &str) -> Option<Json> {
    let Json::String(text) = value else {
        let is_plain = matches!(value, Json::Number(_) | Json::Bool(_));
        return (kind == "string" && is_plain).then(|| Json::String(value.canonical()));
    };
    let text = text.trim();
    match kind {
        "boolean" if text.eq_ignore_ascii_case("true") => Some(Json::Bool(true)),
        "boolean" if text.eq_ignore_ascii_case("false") => Some(Json::Bool(false)),
        "integer" | "number" if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            json::parse(text).ok().filter(|read| is_number(read, text, kind))
        }
        "object" if text.starts_with('{') => json::parse(text).ok(),
        "array" if text.starts_with('[') => json::parse(text).ok(),
        _ => None,
    }
}

fn is_number(read: &Json, text: &str, kind: &str) -> bool {
    let Json::Number(number) = read else { return false };
    let is_integer = !number.contains(['.', 'e']);
    is_integer || (kind == "number" && text.len() <= FRACTION_MAX)
}

/// The enum option with the same text as the value.
fn as_option(value: &Json, options: &[Value]) -> Option<Json> {
    let options: Vec<Json> = options.iter().filter_map(|option| json::parse(&option.to_string()).ok()).collect();
    let read = |kind: &&str| as_kind(value, kind).filter(|read| options.contains(read));
    ["boolean", "integer", "number", "string"].iter().find_map(read)
}

/// Names of the types.
pub(super) fn kinds(kind: &TypeKind) -> Vec<String> {
    match kind {
        TypeKind::Single(kind) => vec![kind.to_string()],
        TypeKind::Multiple(kinds) => kinds.iter().map(|kind| kind.to_string()).collect(),
    }
}
