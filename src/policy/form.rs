//! The form of a policy file: YAML to values with the lines of their keys, held against the published JSON Schema, so
//! that everything that is wrong is said at once and with its place.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use jsonschema::{Validator, error::ValidationErrorKind};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::{
    PolicyError,
    file::{File, PolicyEngine},
    schema::schema_with,
};
use crate::rules::{RULES, Rule};

/// Edits by which a key may be off and still be meant.
const EDITS_MAX: usize = 3;

/// The form of files that set the parameters of the built-in rules.
pub(super) static BUILT_IN: LazyLock<Form> = LazyLock::new(|| Form::of(RULES));

/// The form of a policy file.
pub(super) struct Form {
    schema: Value,
    validator: Option<Validator>,
}

/// The line of each key, by its path.
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<String, u64>);

impl Lines {
    /// The line of a key, or of the nearest one around it.
    pub(super) fn of(&self, path: &str) -> Option<u64> {
        let mut path = path;
        loop {
            if let Some(line) = self.0.get(path) {
                return Some(*line);
            }
            path = path.rsplit_once(['.', '['])?.0;
        }
    }
}

impl Form {
    /// The published JSON Schema.
    pub(super) fn schema(&self) -> &Value {
        &self.schema
    }

    /// The form of files that set the parameters of these rules.
    pub(super) fn of(rules: &[Rule]) -> Self {
        let schema = schema_with(rules);
        Self { validator: jsonschema::validator_for(&schema).ok(), schema }
    }

    /// Reads a file, of which each rule is to take its parts before [`rest`] is read.
    ///
    /// # Errors
    /// What is not YAML, or everything that has not the form of a policy.
    pub(super) fn read(&self, text: &str) -> Result<(Value, Lines), Vec<PolicyError>> {
        // `off` is a word here, not a boolean.
        let options = serde_saphyr::options! { strict_booleans: true };
        let node: Node = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().map(|location| location.line());
            vec![PolicyError { line, path: String::new(), problem: error.without_snippet().to_string() }]
        })?;
        let mut lines = Lines::default();
        let value = node.value(String::new(), &mut lines);
        let mut errors = self.misfits(&value, &lines);
        if errors.is_empty() {
            return Ok((value, lines));
        }
        errors.sort_by(|a, b| (a.line, &a.path).cmp(&(b.line, &b.path)));
        Err(errors)
    }

    fn misfits(&self, value: &Value, lines: &Lines) -> Vec<PolicyError> {
        let Some(validator) = &self.validator else {
            return vec![anywhere("the policy's own JSON Schema is broken, which is a fault of callgate".to_owned())];
        };
        let mut errors = Vec::new();
        for error in validator.iter_errors(value) {
            let path = dotted(error.instance_path().as_str());
            let mut wrong = |path: String, problem: String| {
                errors.push(PolicyError { line: lines.of(&path), path, problem });
            };
            match error.kind() {
                ValidationErrorKind::AdditionalProperties { unexpected } => {
                    let known = self.keys_at(error.schema_path().as_str());
                    for key in unexpected {
                        let known: Vec<&str> = known.iter().map(String::as_str).collect();
                        wrong(joined(&path, key), unknown("key", key, &known));
                    }
                }
                ValidationErrorKind::Required { property } => {
                    let name = property.as_str().unwrap_or_default();
                    wrong(path, format!("the key `{name}` is missing"));
                }
                ValidationErrorKind::Enum { options } => {
                    let options: Vec<&str> =
                        options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                    wrong(path, no_member(error.instance(), &options));
                }
                ValidationErrorKind::Type { kind } => {
                    let wanted = format!("{kind:?}").to_lowercase();
                    let wanted = wanted.trim_start_matches("single(").trim_end_matches(')');
                    wrong(path, format!("is {}; it must be {}", shown(error.instance()), a_kind(wanted)));
                }
                _ => wrong(path, error.to_string()),
            }
        }
        errors
    }

    /// The keys that an object's schema knows, by the place of its `additionalProperties`.
    fn keys_at(&self, schema_path: &str) -> Vec<String> {
        let object = schema_path.rsplit_once('/').map_or("", |(object, _)| object);
        // A path goes on behind a reference; the definition itself is found by its name.
        let object = object.rsplit_once("/$ref").map_or(object, |(_, rest)| rest);
        let properties = self.schema.pointer(object).and_then(|object| object.get("properties"));
        properties.and_then(Value::as_object).map(|known| known.keys().cloned().collect()).unwrap_or_default()
    }
}

/// What no rule has taken.
///
/// # Errors
/// A number that is too large for its type; its place is not known.
pub(super) fn rest(file: Value) -> Result<PolicyEngine, Vec<PolicyError>> {
    let file: Result<File, _> = serde_json::from_value(file);
    file.map(|file| file.policy_engine).map_err(|error| vec![anywhere(error.to_string())])
}

fn anywhere(problem: String) -> PolicyError {
    PolicyError { line: None, path: String::new(), problem }
}

/// What is said of a name that is not among those that are known.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let hint = match nearest(name, known) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None if known.is_empty() => String::new(),
        None => format!("; it must be one of {}", known.join(", ")),
    };
    format!("unknown {what} `{name}`{hint}")
}

fn no_member(value: &Value, options: &[&str]) -> String {
    let all = options.join(", ");
    match value.as_str().and_then(|text| nearest(text, options)) {
        Some(meant) => format!("is {}; did you mean {meant}? It must be one of {all}", shown(value)),
        None => format!("is {}; it must be one of {all}", shown(value)),
    }
}

/// The option that is meant by a word that is not one of them.
pub(super) fn nearest<'a>(word: &str, options: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let edits = |option: &str| strsim::damerau_levenshtein(&option.to_lowercase(), &word);
    let near = options.iter().map(|option| (edits(option), *option));
    near.filter(|(edits, option)| *edits <= EDITS_MAX.min(option.len().max(2) / 2)).min().map(|(_, option)| option)
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 40 { format!("{}…", text.chars().take(40).collect::<String>()) } else { text }
}

fn a_kind(kind: &str) -> &str {
    match kind {
        "object" => "a map of keys",
        "array" => "a list",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "string" => "a text",
        other => other,
    }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A JSON pointer as the path that people write.
fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            path = format!("{path}[{part}]");
        } else {
            path = joined(&path, &part);
        }
    }
    path
}

/// A YAML value with the lines of its keys.
#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(String, u64, Node)>),
}

impl Node {
    fn value(self, path: String, lines: &mut Lines) -> Value {
        match self {
            Self::Scalar(value) => value,
            Self::List(items) => {
                let items = items.into_iter().enumerate();
                let items = items.map(|(i, item)| {
                    let path = format!("{path}[{i}]");
                    if let Self::Map(members) = &item {
                        // An entry stands where its first key does.
                        lines.0.extend(members.first().map(|(_, line, _)| (path.clone(), *line)));
                    }
                    item.value(path, lines)
                });
                items.collect()
            }
            Self::Map(members) => {
                let mut map = Map::new();
                for (key, line, node) in members {
                    let path = joined(&path, &key);
                    lines.0.insert(path.clone(), line);
                    map.insert(key, node.value(path, lines));
                }
                Value::Object(map)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            members.push((key.value, key.referenced.line(), map.next_value()?));
        }
        Ok(Node::Map(members))
    }
}
