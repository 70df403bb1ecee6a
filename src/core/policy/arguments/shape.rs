//! Declared fields of a schema, behind references, in branches, in lists.
//!
//! A field is known when any subschema that may apply to its object names it. An object without a field list in any
//! subschema, or with one that allows more (`additionalProperties`, `patternProperties`), has no unknown fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::messages;
use crate::rules::condition::nearest;

/// Maximum number of reported unknown fields per call.
const UNKNOWN_MAX: usize = 100;
/// Maximum number of subschemas in one place; beyond it every field is known there.
const APPLIED_MAX: usize = 200;

/// A field outside the schema.
#[derive(Debug)]
pub(super) struct UnknownField {
    pub(super) steps: Vec<String>,
    /// Path: `items[0].sku`.
    pub(super) field: String,
    /// The known field with the most similar name.
    pub(super) near: Option<String>,
    /// True when the schema refuses it.
    pub(super) is_refused: bool,
}

/// The fields of a schema; the first part is its root.
#[derive(Debug, Default)]
pub(super) struct SchemaFields {
    parts: Vec<Subschema>,
}

/// A subschema with all others that apply in its place.
#[derive(Debug, Default)]
struct Subschema {
    properties: BTreeMap<String, Vec<usize>>,
    /// Subschemas of array items: by index, and of the rest.
    items: Vec<usize>,
    prefix: Vec<Vec<usize>>,
    /// True when fields are listed, even an empty list.
    is_listed: bool,
    /// True when more than the listed fields is allowed.
    is_open: bool,
    /// True when other fields are refused in any branch.
    is_closed: bool,
}

impl SchemaFields {
    pub(super) fn of(schema: &Value) -> Self {
        let mut reader = Reader { schema, places: BTreeMap::new(), parts: Vec::new() };
        reader.part_index("");
        Self { parts: reader.parts }
    }

    /// The unknown fields of a value.
    pub(super) fn unknown(&self, value: &Value) -> Vec<UnknownField> {
        let mut found = Vec::new();
        self.walk(&[0], value, &mut Vec::new(), &mut found);
        found
    }

    fn walk<'a>(&self, parts: &[usize], value: &'a Value, path: &mut Vec<Step<'a>>, found: &mut Vec<UnknownField>) {
        match value {
            Value::Object(members) => {
                let is_open = parts.iter().any(|part| self.parts[*part].is_open)
                    || !parts.iter().any(|part| self.parts[*part].is_listed);
                for (name, member) in members {
                    path.push(Step::Name(name));
                    match *parts {
                        [part] => match self.parts[part].properties.get(name) {
                            Some(below) => self.walk(below, member, path, found),
                            None if is_open => {}
                            None => self.report_unknown(parts, name, path, found),
                        },
                        _ => {
                            let below: Vec<usize> = parts
                                .iter()
                                .filter_map(|part| self.parts[*part].properties.get(name))
                                .flatten()
                                .copied()
                                .collect();
                            let is_known = parts.iter().any(|part| self.parts[*part].properties.contains_key(name));
                            if is_known {
                                self.walk(&below, member, path, found);
                            } else if !is_open {
                                self.report_unknown(parts, name, path, found);
                            }
                        }
                    }
                    path.pop();
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let below: Vec<usize> = parts
                        .iter()
                        .flat_map(|part| self.parts[*part].prefix.get(i).unwrap_or(&self.parts[*part].items))
                        .copied()
                        .collect();
                    if below.is_empty() {
                        continue;
                    }
                    path.push(Step::Index(i));
                    self.walk(&below, item, path, found);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    fn report_unknown(&self, parts: &[usize], name: &str, path: &[Step<'_>], found: &mut Vec<UnknownField>) {
        if found.len() == UNKNOWN_MAX {
            return;
        }
        let known: Vec<&str> =
            parts.iter().flat_map(|part| self.parts[*part].properties.keys()).map(String::as_str).collect();
        let mut field = String::new();
        for step in path {
            match step {
                Step::Name(name) => field = messages::join_path(&field, name),
                Step::Index(i) => field.push_str(&format!("[{i}]")),
            }
        }
        let steps = path.iter().map(|step| match step {
            Step::Name(name) => (*name).to_owned(),
            Step::Index(i) => i.to_string(),
        });
        let near = nearest(name, &known).map(str::to_owned);
        let is_refused = parts.iter().any(|part| self.parts[*part].is_closed);
        found.push(UnknownField { steps: steps.collect(), field, near, is_refused });
    }
}

enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

struct Reader<'a> {
    schema: &'a Value,
    /// Index of a part by the pointer to its subschema, because schemas can be recursive.
    places: BTreeMap<String, usize>,
    parts: Vec<Subschema>,
}

impl Reader<'_> {
    fn part_index(&mut self, pointer: &str) -> usize {
        if let Some(part) = self.places.get(pointer) {
            return *part;
        }
        let part = self.parts.len();
        self.places.insert(pointer.to_owned(), part);
        self.parts.push(Subschema::default());
        let mut pointers = vec![(pointer.to_owned(), true)];
        let mut at = 0;
        // Subschemas that apply in the same place, each once.
        while at < pointers.len() {
            if at == APPLIED_MAX {
                self.parts[part].is_open = true;
                break;
            }
            let (pointer, is_certain) = pointers[at].clone();
            self.add(part, &pointer, is_certain, &mut pointers);
            at += 1;
        }
        part
    }

    /// Adds a subschema to a part, and others in its place, certain or possible, to `pointers`.
    fn add(&mut self, part: usize, pointer: &str, is_certain: bool, pointers: &mut Vec<(String, bool)>) {
        let Some(Value::Object(schema)) = self.schema.pointer(pointer) else {
            // `true` allows everything, `false` is none of our business, a place that is not found may be anything.
            self.parts[part].is_open = true;
            return;
        };
        let mut also = |pointer: String, is_certain: bool| {
            if !pointers.iter().any(|(known, _)| *known == pointer) {
                pointers.push((pointer, is_certain));
            }
        };
        for (keyword, value) in schema {
            let below = format!("{pointer}/{}", escape_name(keyword));
            let count = value.as_array().map_or(0, Vec::len);
            let names = || value.as_object().into_iter().flat_map(|members| members.keys());
            match keyword.as_str() {
                "properties" => {
                    self.parts[part].is_listed = true;
                    for name in names() {
                        let found = self.part_index(&format!("{below}/{}", escape_name(name)));
                        self.parts[part].properties.entry(name.clone()).or_default().push(found);
                    }
                }
                "additionalProperties" | "unevaluatedProperties" => {
                    self.parts[part].is_listed |= *value == false;
                    self.parts[part].is_closed |= is_certain && *value == false;
                    self.parts[part].is_open |= *value != false;
                }
                "patternProperties" | "$dynamicRef" | "$recursiveRef" => self.parts[part].is_open = true,
                "required" => {
                    for name in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
                        self.parts[part].properties.entry(name.to_owned()).or_default();
                    }
                }
                "allOf" => (0..count).for_each(|i| also(format!("{below}/{i}"), is_certain)),
                "anyOf" | "oneOf" => (0..count).for_each(|i| also(format!("{below}/{i}"), false)),
                "if" | "then" | "else" if value.is_object() => also(below, false),
                "dependentSchemas" => names().for_each(|name| also(format!("{below}/{}", escape_name(name)), false)),
                "$ref" => match value.as_str().and_then(|to| to.strip_prefix('#')) {
                    Some(to) if to.is_empty() || to.starts_with('/') => also(to.to_owned(), is_certain),
                    _ => self.parts[part].is_open = true,
                },
                "items" if value.is_object() => {
                    let found = self.part_index(&below);
                    self.parts[part].items.push(found);
                }
                "prefixItems" | "items" => {
                    for i in 0..count {
                        let found = self.part_index(&format!("{below}/{i}"));
                        let prefix = &mut self.parts[part].prefix;
                        prefix.resize_with(prefix.len().max(i + 1), Vec::new);
                        prefix[i].push(found);
                    }
                }
                _ => {}
            }
        }
    }
}

fn escape_name(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
