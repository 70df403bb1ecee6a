//! Argument validation against the tool's JSON Schema: violations with messages that a model can act on, and lossless
//! coercions.
//!
//! Integers beyond 64 bits are compared as doubles here, and here only: fingerprints, and repaired arguments, keep all
//! their digits.

mod coerce;
mod compile;
mod errors;
mod malformed;
mod messages;
mod shape;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use jsonschema::Validator;
use serde_json::{Map, Number, Value};

pub(in crate::policy) use self::malformed::check_object;
use self::shape::{SchemaFields, UnknownField};
use crate::domain::{
    json::Json,
    violation::{CoercedField, OnViolation, Violation},
};

/// Maximum number of listed violations.
pub const VIOLATIONS_MAX: usize = 10;
/// Maximum size of a schema, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 262_144;
/// Maximum number of violations read.
const ERRORS_MAX: usize = 1_000;

/// Handling of fields outside the schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// By the schema: refused under `additionalProperties: false`, otherwise only logged.
    #[default]
    BySchema,
    /// Refused.
    Refuse,
    /// Only logged.
    Log,
}

/// Handling of a value of another type with a lossless conversion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coercion {
    /// Refused.
    #[default]
    Reject,
    /// Accepted unchanged, and logged.
    AcceptAndLog,
    /// Replaced by the converted value, and logged.
    Repair,
}

/// A compiled schema. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct ArgumentSchema {
    compiled: Arc<CompiledSchema>,
    unknown: UnknownFields,
    coercion: Coercion,
    /// A top-level field with its default value equals an absent one.
    knows_defaults: bool,
}

#[derive(Debug)]
struct CompiledSchema {
    /// Defaults of top-level fields.
    defaults: BTreeMap<String, Json>,
    schema: Value,
    validator: Validator,
    shape: SchemaFields,
}

/// Result of a validation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArgumentCheck {
    /// Violations by field, at most [`VIOLATIONS_MAX`], with the number of the others.
    pub violations: Vec<Violation>,
    /// Coerced values, by field.
    pub coerced: Vec<CoercedField>,
    /// Accepted fields outside the schema, by name.
    pub unknown: Vec<String>,
    /// Repaired arguments to execute; none when nothing was repaired, or violations remain.
    pub repaired: Option<Json>,
    /// Coerced arguments for the fingerprint, where the original ones execute.
    pub accepted: Option<Json>,
}

impl ArgumentSchema {
    /// Compiles a schema: JSON Schema 2020-12 unless its `$schema` says otherwise; formats are checked, nothing is
    /// fetched.
    ///
    /// # Errors
    /// All problems, each with its place in the schema.
    pub fn compile(schema: &Value, unknown: UnknownFields, coercion: Coercion) -> Result<Self, Vec<String>> {
        Ok(Self { compiled: Arc::new(compile::compile(schema)?), unknown, coercion, knows_defaults: true })
    }

    /// The schema without defaults, for a tool whose fingerprint includes every argument as written.
    #[must_use]
    pub fn without_defaults(self) -> Self {
        Self { knows_defaults: false, ..self }
    }

    /// The arguments for the fingerprint: an explicit default equals an absent field.
    #[must_use]
    pub fn drop_defaults<'a>(&self, arguments: &'a Json) -> Cow<'a, Json> {
        let is_default =
            |(name, value): &(String, Json)| self.knows_defaults && self.compiled.defaults.get(name) == Some(value);
        match arguments {
            Json::Object(members) if members.iter().any(is_default) => {
                Cow::Owned(Json::Object(members.iter().filter(|member| !is_default(member)).cloned().collect()))
            }
            _ => Cow::Borrowed(arguments),
        }
    }

    /// Validates the arguments.
    #[must_use]
    pub fn check(&self, arguments: &Json) -> ArgumentCheck {
        let (value, unknown) = self.read(arguments);
        if self.compiled.validator.is_valid(&value) {
            return self.report_violations(unknown, Vec::new());
        }
        if self.coercion == Coercion::Reject {
            return self.report_violations(unknown, self.violations(arguments, &value));
        }
        let (repaired, coerced) = self.coerce(arguments);
        if coerced.is_empty() {
            return self.report_violations(unknown, self.violations(arguments, &value));
        }
        let (value, unknown) = self.read(&repaired);
        let violations =
            if self.compiled.validator.is_valid(&value) { Vec::new() } else { self.violations(&repaired, &value) };
        let mut checked = ArgumentCheck { coerced, ..self.report_violations(unknown, violations) };
        if checked.violations.is_empty() {
            let kept = if self.coercion == Coercion::Repair { &mut checked.repaired } else { &mut checked.accepted };
            *kept = Some(repaired);
        }
        checked
    }

    /// The arguments in the validator's form, and the unknown fields. Those judged already are removed, so that each is
    /// reported once.
    fn read(&self, arguments: &Json) -> (Value, Vec<UnknownField>) {
        let mut value = as_value(arguments);
        let unknown = self.compiled.shape.unknown(&value);
        for unknown in unknown.iter().filter(|unknown| self.unknown != UnknownFields::BySchema || unknown.is_refused) {
            remove(&mut value, &unknown.steps);
        }
        (value, unknown)
    }

    fn report_violations(&self, unknown: Vec<UnknownField>, mut violations: Vec<Violation>) -> ArgumentCheck {
        let mut told = Vec::new();
        for UnknownField { field, near, is_refused, .. } in unknown {
            let is_refused = match self.unknown {
                UnknownFields::BySchema => is_refused,
                UnknownFields::Refuse => true,
                UnknownFields::Log => false,
            };
            // A branch may refuse it as well.
            let is_said = violations.iter().any(|said| said.keyword == messages::UNKNOWN && said.field == field);
            if is_said {
                continue;
            }
            if is_refused {
                violations.push(messages::unknown_field(&field, near.as_deref()));
            } else {
                told.push(field);
            }
        }
        told.sort();
        ArgumentCheck { violations: limit_violations(violations), unknown: told, ..ArgumentCheck::default() }
    }

    fn violations(&self, arguments: &Json, value: &Value) -> Vec<Violation> {
        let mut found = Vec::new();
        for error in self.compiled.validator.iter_errors(value).take(ERRORS_MAX) {
            errors::violations(&self.compiled.schema, arguments, &error, &mut found);
        }
        found
    }
}

/// Sorted by field, and limited.
fn limit_violations(mut violations: Vec<Violation>) -> Vec<Violation> {
    violations.sort_by(|a, b| (&a.field, &a.message).cmp(&(&b.field, &b.message)));
    violations.dedup();
    let rest = violations.len().saturating_sub(VIOLATIONS_MAX);
    if rest > 0 {
        violations.truncate(VIOLATIONS_MAX);
        let things = if rest == 1 { "thing is" } else { "things are" };
        let message = format!("{rest} more {things} wrong; correct these first");
        violations.push(violation("", "more", message));
    }
    violations
}

fn violation(field: &str, keyword: &str, message: String) -> Violation {
    Violation {
        field: field.to_owned(),
        message,
        keyword: keyword.to_owned(),
        on_violation: OnViolation::SelfCorrect,
        user_facing_hint: None,
        is_hopeless: false,
    }
}

/// Removes the member at the path.
fn remove(value: &mut Value, steps: &[String]) {
    let Some((last, before)) = steps.split_last() else { return };
    let mut at = value;
    for step in before {
        let next = match at {
            Value::Object(members) => members.get_mut(step),
            Value::Array(items) => step.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    if let Value::Object(members) = at {
        members.remove(last);
    }
}

fn as_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(text) => as_number(text).map_or(Value::Null, Value::Number),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => items.iter().map(as_value).collect(),
        Json::Object(members) => {
            Value::Object(members.iter().map(|(name, member)| (name.clone(), as_value(member))).collect::<Map<_, _>>())
        }
    }
}

/// A number beyond a double's range becomes the largest double, which is on the right side of any limit.
fn as_number(text: &str) -> Option<Number> {
    let integer = text.parse::<i64>().ok().map(Number::from).or_else(|| text.parse::<u64>().ok().map(Number::from));
    integer.or_else(|| Number::from_f64(text.parse::<f64>().ok()?.clamp(f64::MIN, f64::MAX)))
}

#[cfg(test)]
mod tests;
