//! The arguments of a call against the tool's JSON Schema: what is wrong with them, in words that a model can act on,
//! and what can be read as right all the same.
//!
//! Integers beyond 64 bits are compared as doubles here, and here only: fingerprints keep all their digits.

mod coerce;
mod words;

use std::sync::Arc;

use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use serde_json::{Map, Number, Value};

use crate::domain::{
    json::Json,
    violation::{CoercedField, OnViolation, Violation},
};

/// Violations that are told one by one.
pub const VIOLATIONS_MAX: usize = 10;
/// Longest schema, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 262_144;
/// Values of one call that are read as another type.
const COERCIONS_MAX: usize = 32;

/// What becomes of fields that a schema does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// What the schema itself says: refused under `additionalProperties: false`, else only told.
    #[default]
    BySchema,
    /// They are refused.
    Refuse,
    /// They are only told.
    Log,
}

/// What becomes of a value of another type that can be read as the right one without loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coercion {
    /// It is refused.
    #[default]
    Reject,
    /// It is let through as it is, and told.
    AcceptAndLog,
    /// It is replaced by the right one, and told.
    Repair,
}

/// A schema, compiled.
#[derive(Debug, Clone)]
pub struct ArgumentSchema {
    validator: Arc<Validator>,
    schema: Arc<Value>,
    unknown: UnknownFields,
    coercion: Coercion,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// What is wrong, by field.
    pub violations: Vec<Violation>,
    /// Values that were read as another type.
    pub coerced: Vec<CoercedField>,
    /// Fields that the schema does not know and that were let through.
    pub unknown: Vec<String>,
    /// The arguments that are to execute instead; none when they are right as they are.
    pub repaired: Option<Json>,
}

impl ArgumentSchema {
    /// Compiles a schema (2020-12 unless it says otherwise; formats count; nothing is fetched).
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn compile(schema: &Value, unknown: UnknownFields, coercion: Coercion) -> Result<Self, Vec<String>> {
        if schema.to_string().len() > SCHEMA_BYTES_MAX {
            return Err(vec![format!("is too long: at most {SCHEMA_BYTES_MAX} bytes of JSON are allowed")]);
        }
        let is_object = |kind: &Value| kind == "object" || kind.as_array().is_some_and(|all| all.contains(kind));
        if !schema.is_object() || !schema.get("type").is_none_or(is_object) {
            return Err(vec!["must describe an object: arguments are one".to_owned()]);
        }
        let built = jsonschema::options().should_validate_formats(true).build(schema);
        let validator = built.map_err(|error| vec![format!("is no JSON Schema: {}", one_line(&error.to_string()))])?;
        Ok(Self { validator: Arc::new(validator), schema: Arc::new(schema.clone()), unknown, coercion })
    }

    /// What is wrong with the arguments, and what they are to be read as.
    #[must_use]
    pub fn check(&self, arguments: &Json) -> Checked {
        let mut value = as_value(arguments);
        let mut checked = Checked::default();
        let mut read = None;
        if self.coercion != Coercion::Reject && !self.validator.is_valid(&value) {
            let mut arguments = arguments.clone();
            checked.coerced = self.coerce(&mut arguments, &mut value);
            read = (!checked.coerced.is_empty()).then_some(arguments);
        }
        let extra = self.unknown_fields(&value);
        if self.unknown == UnknownFields::Refuse {
            checked.violations.extend(extra.iter().map(|(field, near)| words::unknown_field(field, near.as_deref())));
        } else {
            checked.unknown = extra.into_iter().map(|(field, _)| field).collect();
        }
        if !self.validator.is_valid(&value) {
            self.violations(&value, &mut checked);
        }
        bounded(&mut checked.violations);
        checked.repaired = read.filter(|_| self.coercion == Coercion::Repair);
        checked
    }

    fn violations(&self, value: &Value, checked: &mut Checked) {
        for error in self.validator.iter_errors(value) {
            match error.kind() {
                ValidationErrorKind::AdditionalProperties { unexpected }
                | ValidationErrorKind::UnevaluatedProperties { unexpected }
                    if self.unknown == UnknownFields::Log =>
                {
                    let at = words::dotted(error.instance_path().as_str());
                    checked.unknown.extend(unexpected.iter().map(|name| words::joined(&at, name)));
                }
                _ => words::violations(&self.schema, &error, &mut checked.violations),
            }
        }
        let mut seen = Vec::new();
        checked.violations.retain(|violation| {
            let new = !seen.contains(&violation.field) || violation.keyword != "unknown_field";
            seen.push(violation.field.clone());
            new
        });
        checked.unknown.sort();
        checked.unknown.dedup();
    }

    /// Fields that no `properties` names, where the schema leaves that open; with the known one that is nearest.
    fn unknown_fields(&self, value: &Value) -> Vec<(String, Option<String>)> {
        let mut found = Vec::new();
        walk(&self.schema, value, "", &mut found);
        found
    }
}

fn walk(schema: &Value, value: &Value, at: &str, found: &mut Vec<(String, Option<String>)>) {
    const OPEN: [&str; 8] =
        ["$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "additionalProperties", "unevaluatedProperties"];
    match value {
        Value::Object(members) => {
            let Some(known) = schema.get("properties").and_then(Value::as_object) else { return };
            let is_plain = !OPEN.iter().any(|keyword| schema.get(keyword).is_some());
            for (name, member) in members {
                let path = words::joined(at, name);
                match known.get(name) {
                    Some(schema) => walk(schema, member, &path, found),
                    None if is_plain => found.push((path, words::near(name, known))),
                    None => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (i, item) in items.iter().enumerate() {
                    walk(schema, item, &format!("{at}[{i}]"), found);
                }
            }
        }
        _ => {}
    }
}

/// By field, and no more of them than anybody reads.
fn bounded(violations: &mut Vec<Violation>) {
    violations.sort_by(|a, b| (&a.field, &a.message).cmp(&(&b.field, &b.message)));
    violations.dedup();
    let rest = violations.len().saturating_sub(VIOLATIONS_MAX);
    if rest > 0 {
        violations.truncate(VIOLATIONS_MAX);
        violations.push(violation("", "more", format!("{rest} more things are wrong")));
    }
}

fn violation(field: &str, keyword: &str, message: String) -> Violation {
    Violation {
        field: field.to_owned(),
        message,
        keyword: keyword.to_owned(),
        on_violation: OnViolation::SelfCorrect,
        user_facing_hint: None,
    }
}

/// The branches of an `anyOf` or `oneOf`: the one that is nearest, by what is wrong with it.
fn nearest_branch<'a, 'b>(branches: &'a [Vec<ValidationError<'b>>]) -> Option<&'a [ValidationError<'b>]> {
    let is_type = |error: &ValidationError<'_>| matches!(error.kind(), ValidationErrorKind::Type { .. });
    let wrong = |errors: &&Vec<ValidationError<'b>>| (errors.iter().filter(|e| is_type(e)).count(), errors.len());
    branches.iter().filter(|errors| !errors.is_empty()).min_by_key(wrong).map(Vec::as_slice)
}

fn as_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(text) => {
            let integer =
                text.parse::<i64>().ok().map(Number::from).or_else(|| text.parse::<u64>().ok().map(Number::from));
            let number = integer.or_else(|| Number::from_f64(text.parse().unwrap_or(0.0)));
            number.map_or(Value::Null, Value::Number)
        }
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => items.iter().map(as_value).collect(),
        Json::Object(members) => {
            Value::Object(members.iter().map(|(name, member)| (name.clone(), as_value(member))).collect::<Map<_, _>>())
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
