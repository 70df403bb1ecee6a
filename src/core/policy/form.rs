//! Form check of a policy file: parses YAML with key positions and validates it against the published JSON Schema, to
//! report all problems at once.

mod durations;
mod messages;
mod node;
mod renamed;

use std::{collections::BTreeMap, sync::LazyLock};

use jsonschema::{Validator, error::ValidationErrorKind};
use serde_json::{Map, Value};

use self::node::YamlNode;
use super::{
    PolicyError,
    file::{PolicyEngine, PolicyFile},
    schema::schema_with,
};
pub(super) use messages::{a_kind, unknown};

/// The root key.
const ENGINE: &str = "policy_engine";
use crate::rules::{RULES, Rule};

/// Maximum edit distance for a suggested key.
const EDITS_MAX: usize = 3;

/// The form with the parameters of the built-in rules.
pub(super) static BUILT_IN: LazyLock<PolicyForm> = LazyLock::new(|| PolicyForm::of(RULES));

/// The form of a policy file.
pub(super) struct PolicyForm {
    schema: Value,
    validator: Option<Validator>,
}

/// Adapts numbers of the published schema: durations may be texts, and each type has its maximum.
pub(super) fn publish(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("format").is_some_and(|format| format == "uint32") {
                members.entry("maximum").or_insert(u32::MAX.into());
            }
            if let Some(Value::Object(keys)) = members.get_mut("properties") {
                durations::allow(keys);
            }
            members.values_mut().for_each(publish);
        }
        Value::Array(items) => items.iter_mut().for_each(publish),
        _ => {}
    }
}

/// Position of a key: line and column, from 1.
pub(super) type Position = (u64, u64);

/// Positions of keys, by path.
#[derive(Debug, Default)]
pub(super) struct KeyPositions(BTreeMap<String, Position>);

impl KeyPositions {
    /// A problem at a key's position, or at that of the nearest enclosing one.
    pub(super) fn problem(&self, path: String, problem: String) -> PolicyError {
        let (line, column) = self.of(&path).unzip();
        PolicyError { line, column, path, problem }
    }

    fn of(&self, path: &str) -> Option<Position> {
        let mut path = path;
        loop {
            if let Some(place) = self.0.get(path) {
                return Some(*place);
            }
            path = path.rsplit_once(['.', '['])?.0;
        }
    }
}

impl PolicyForm {
    /// The published JSON Schema.
    pub(super) fn schema(&self) -> &Value {
        &self.schema
    }

    /// The form with the parameters of these rules.
    pub(super) fn of(rules: &[Rule]) -> Self {
        let schema = schema_with(rules);
        Self { validator: jsonschema::validator_for(&schema).ok(), schema }
    }

    /// Parses a file; a stored one may have renamed keys. Each rule takes its keys before
    /// [`read_remaining_keys`] is read.
    ///
    /// # Errors
    /// Invalid YAML, or all deviations from the form.
    pub(super) fn read(&self, text: &str, is_stored: bool) -> Result<(Value, KeyPositions), Vec<PolicyError>> {
        // `off` is a word here, not a boolean.
        let options = serde_saphyr::options! { strict_booleans: true };
        let node: YamlNode = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let place = error.location().map(|location| (location.line(), location.column()));
            let (line, column) = place.unzip();
            vec![PolicyError {
                line,
                column,
                path: String::new(),
                problem: messages::of_yaml(&error.without_snippet().to_string()),
            }]
        })?;
        let mut lines = KeyPositions::default();
        let mut value = node.value(String::new(), &mut lines);
        if is_stored {
            renamed::rename(&mut value);
        }
        durations::resolve(&mut value);
        let mut errors = self.misfits(&value, &lines);
        if errors.is_empty() {
            return Ok((value, lines));
        }
        errors.sort_by(|a, b| (a.line, &a.path).cmp(&(b.line, &b.path)));
        Err(errors)
    }

    fn misfits(&self, value: &Value, lines: &KeyPositions) -> Vec<PolicyError> {
        let Some(validator) = &self.validator else {
            return vec![anywhere("the policy's own JSON Schema is broken, which is a fault of callgate".to_owned())];
        };
        let mut errors = Vec::new();
        for error in validator.iter_errors(value) {
            let path = to_dotted_path(error.instance_path().as_str());
            let mut wrong = |path: String, problem: String| {
                errors.push(lines.problem(path, problem));
            };
            match error.kind() {
                ValidationErrorKind::AdditionalProperties { unexpected } => {
                    let known = self.keys_at(error.schema_path().as_str());
                    for key in unexpected {
                        let problem = self.find_right_place(&path, key).unwrap_or_else(|| {
                            unknown("key", key, &known.iter().map(String::as_str).collect::<Vec<_>>())
                        });
                        wrong(join_path(&path, key), problem);
                    }
                }
                ValidationErrorKind::Required { property } => {
                    let name = property.as_str().unwrap_or_default();
                    // Misplaced keys are reported already.
                    let is_said = path.is_empty() && error.instance().as_object().is_some_and(|keys| !keys.is_empty());
                    if !is_said || self.engine_keys().iter().all(|key| error.instance().get(*key).is_none()) {
                        wrong(path, format!("the key `{name}` is missing"));
                    }
                }
                _ => {
                    let problem = messages::of_value(&path, &error);
                    wrong(path, problem);
                }
            }
        }
        errors
    }

    /// The right place of a misplaced key: below `policy_engine`, or in one of its sections.
    fn find_right_place(&self, path: &str, key: &str) -> Option<String> {
        let sections = self.engine_keys();
        if path.is_empty() && sections.contains(&key) {
            return Some(format!("`{key}` belongs below `{ENGINE}:`"));
        }
        let holds = |section: &&&str| self.keys_of(section).is_some_and(|keys| keys.contains_key(key));
        let mut holding = sections.iter().filter(holds);
        let section = holding.next().filter(|_| path == ENGINE && holding.next().is_none())?;
        Some(format!("`{key}` belongs below `{section}:`"))
    }

    fn engine_keys(&self) -> Vec<&str> {
        let keys = self.schema.pointer("/$defs/PolicyEngine/properties").and_then(Value::as_object);
        keys.into_iter().flat_map(|keys| keys.keys().map(String::as_str)).collect()
    }

    /// The keys of one section.
    fn keys_of(&self, section: &str) -> Option<&Map<String, Value>> {
        let section = self.schema.pointer(&format!("/$defs/PolicyEngine/properties/{section}"))?;
        let named = section.get("$ref").and_then(Value::as_str).map(|path| path.trim_start_matches('#'));
        named.map_or(Some(section), |path| self.schema.pointer(path))?.get("properties")?.as_object()
    }

    /// The keys of an object's schema, by the place of its `additionalProperties`.
    fn keys_at(&self, schema_path: &str) -> Vec<String> {
        let object = schema_path.rsplit_once('/').map_or("", |(object, _)| object);
        // A path continues behind a reference; the definition itself is found by its name.
        let object = object.rsplit_once("/$ref").map_or(object, |(_, rest)| rest);
        let properties = self.schema.pointer(object).and_then(|object| object.get("properties"));
        properties.and_then(Value::as_object).map(|known| known.keys().cloned().collect()).unwrap_or_default()
    }
}

/// Reads the keys that no rule has taken.
///
/// # Errors
/// A number that is too large for its type; its position is unknown.
pub(super) fn read_remaining_keys(file: Value) -> Result<PolicyEngine, Vec<PolicyError>> {
    let file: Result<PolicyFile, _> = serde_json::from_value(file);
    file.map(|file| file.policy_engine).map_err(|_| vec![anywhere("a number is too large for its key".to_owned())])
}

fn anywhere(problem: String) -> PolicyError {
    PolicyError { line: None, column: None, path: String::new(), problem }
}

/// The option that a misspelled word means.
pub(super) fn nearest<'a>(word: &str, options: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let edits = |option: &str| strsim::damerau_levenshtein(&option.to_lowercase(), &word);
    let near = options.iter().map(|option| (edits(option), *option));
    near.filter(|(edits, option)| *edits <= EDITS_MAX.min(option.len().max(2) / 2)).min().map(|(_, option)| option)
}

fn join_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A JSON pointer as a path.
fn to_dotted_path(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            path = format!("{path}[{part}]");
        } else {
            path = join_path(&path, &part);
        }
    }
    path
}
