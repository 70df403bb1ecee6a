//! The arguments of a call against the tool's JSON Schema: what is wrong with them, in words that a model can act on,
//! and what can be read as right all the same.
//!
//! Integers beyond 64 bits are compared as doubles here, and here only: fingerprints, and arguments that were repaired,
//! keep all their digits.

mod coerce;
mod compile;
mod errors;
mod malformed;
mod shape;
mod words;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use jsonschema::Validator;
use serde_json::{Map, Number, Value};

pub(in crate::policy) use self::malformed::malformed;
use self::shape::{Shape, Unknown};
use crate::domain::{
    json::Json,
    violation::{CoercedField, OnViolation, Violation},
};

/// Violations that are told one by one.
pub const VIOLATIONS_MAX: usize = 10;
/// Longest schema, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 262_144;
/// Violations that are looked at, counted or told.
const ERRORS_MAX: usize = 1_000;

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

/// A schema, compiled. A copy is cheap.
#[derive(Debug, Clone)]
pub struct ArgumentSchema {
    compiled: Arc<Compiled>,
    unknown: UnknownFields,
    coercion: Coercion,
    /// A top-level field that has its default says no more than one that is left out.
    knows_defaults: bool,
}

#[derive(Debug)]
struct Compiled {
    /// What the schema says of top-level fields that are left out.
    defaults: BTreeMap<String, Json>,
    schema: Value,
    validator: Validator,
    shape: Shape,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// What is wrong, by field; at most [`VIOLATIONS_MAX`], and how many more there are.
    pub violations: Vec<Violation>,
    /// Values that were read as another type, by field.
    pub coerced: Vec<CoercedField>,
    /// Fields that the schema does not know and that were let through, by name.
    pub unknown: Vec<String>,
    /// The arguments that are to execute instead; none when nothing was repaired, or when something is still wrong.
    pub repaired: Option<Json>,
    /// The arguments as they were read where they execute as they are: the call is known again by these.
    pub accepted: Option<Json>,
}

impl ArgumentSchema {
    /// Compiles a schema: JSON Schema 2020-12 unless its `$schema` says otherwise, formats count, nothing is fetched.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with the place in the schema.
    pub fn compile(schema: &Value, unknown: UnknownFields, coercion: Coercion) -> Result<Self, Vec<String>> {
        Ok(Self { compiled: Arc::new(compile::compile(schema)?), unknown, coercion, knows_defaults: true })
    }

    /// The same for a tool whose calls are known again by every argument as it is written.
    #[must_use]
    pub fn without_defaults(self) -> Self {
        Self { knows_defaults: false, ..self }
    }

    /// The arguments by which a call is known again: a default that is written out is the same as none.
    #[must_use]
    pub fn recognised<'a>(&self, arguments: &'a Json) -> Cow<'a, Json> {
        let is_default =
            |(name, value): &(String, Json)| self.knows_defaults && self.compiled.defaults.get(name) == Some(value);
        match arguments {
            Json::Object(members) if members.iter().any(is_default) => {
                Cow::Owned(Json::Object(members.iter().filter(|member| !is_default(member)).cloned().collect()))
            }
            _ => Cow::Borrowed(arguments),
        }
    }

    /// What is wrong with the arguments, and what they are to be read as.
    #[must_use]
    pub fn check(&self, arguments: &Json) -> Checked {
        let (value, unknown) = self.read(arguments);
        if self.compiled.validator.is_valid(&value) {
            return self.told(unknown, Vec::new());
        }
        if self.coercion == Coercion::Reject {
            return self.told(unknown, self.violations(arguments, &value));
        }
        let (repaired, coerced) = self.coerce(arguments);
        if coerced.is_empty() {
            return self.told(unknown, self.violations(arguments, &value));
        }
        let (value, unknown) = self.read(&repaired);
        let violations =
            if self.compiled.validator.is_valid(&value) { Vec::new() } else { self.violations(&repaired, &value) };
        let mut checked = Checked { coerced, ..self.told(unknown, violations) };
        if checked.violations.is_empty() {
            let kept = if self.coercion == Coercion::Repair { &mut checked.repaired } else { &mut checked.accepted };
            *kept = Some(repaired);
        }
        checked
    }

    /// The arguments as the validator reads them, and the fields that the schema does not know. Those are left out
    /// where they are judged already, so that each is told once.
    fn read(&self, arguments: &Json) -> (Value, Vec<Unknown>) {
        let mut value = as_value(arguments);
        let unknown = self.compiled.shape.unknown(&value);
        for unknown in unknown.iter().filter(|unknown| self.unknown != UnknownFields::BySchema || unknown.is_refused) {
            remove(&mut value, &unknown.steps);
        }
        (value, unknown)
    }

    fn told(&self, unknown: Vec<Unknown>, mut violations: Vec<Violation>) -> Checked {
        let mut told = Vec::new();
        for Unknown { field, near, is_refused, .. } in unknown {
            let is_refused = match self.unknown {
                UnknownFields::BySchema => is_refused,
                UnknownFields::Refuse => true,
                UnknownFields::Log => false,
            };
            // A branch may refuse it as well.
            let is_said = violations.iter().any(|said| said.keyword == words::UNKNOWN && said.field == field);
            if is_said {
                continue;
            }
            if is_refused {
                violations.push(words::unknown_field(&field, near.as_deref()));
            } else {
                told.push(field);
            }
        }
        told.sort();
        Checked { violations: bounded(violations), unknown: told, ..Checked::default() }
    }

    fn violations(&self, arguments: &Json, value: &Value) -> Vec<Violation> {
        let mut found = Vec::new();
        for error in self.compiled.validator.iter_errors(value).take(ERRORS_MAX) {
            errors::violations(&self.compiled.schema, arguments, &error, &mut found);
        }
        found
    }
}

/// By field, and no more of them than anybody reads.
fn bounded(mut violations: Vec<Violation>) -> Vec<Violation> {
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

/// Removes the member that the steps lead to.
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

/// One beyond a double's range is the largest double: still a number, and on the right side of any limit.
fn as_number(text: &str) -> Option<Number> {
    let integer = text.parse::<i64>().ok().map(Number::from).or_else(|| text.parse::<u64>().ok().map(Number::from));
    integer.or_else(|| Number::from_f64(text.parse::<f64>().ok()?.clamp(f64::MIN, f64::MAX)))
}

#[cfg(test)]
mod tests;
