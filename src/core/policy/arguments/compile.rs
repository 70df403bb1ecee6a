//! Compiler of argument schemas, reporting all problems at once.

use std::collections::BTreeMap;

use jsonschema::{
    PatternOptions, ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

use super::{CompiledSchema, SCHEMA_BYTES_MAX, messages, shape::SchemaFields};
use crate::{
    domain::json::{self, Json},
    policy::form::a_kind,
    rules::condition::nearest,
};

/// Maximum nesting depth of a schema, because compiling is recursive.
const DEPTH_MAX: usize = 96;
/// Maximum backtracking steps of a pattern; beyond them the value does not match.
const BACKTRACKS_MAX: usize = 100_000;
/// Maximum number of reported problems per schema.
const PROBLEMS_MAX: usize = 20;
/// Keywords that contain values, not schemas.
const VALUES: [&str; 4] = ["const", "default", "enum", "examples"];
/// Default dialect.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

pub(super) fn compile(schema: &Value) -> Result<CompiledSchema, Vec<String>> {
    if is_deeper(schema, DEPTH_MAX) {
        return Err(vec![format!("is nested deeper than {DEPTH_MAX} levels; name parts of it under $defs")]);
    }
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(vec![format!("is too long: at most {SCHEMA_BYTES_MAX} bytes of JSON are allowed")]);
    }
    let is_object =
        |kind: &Value| kind == "object" || kind.as_array().is_some_and(|all| all.iter().any(|k| k == "object"));
    let says_object = schema.get("type").is_none_or(|kind| is_object(kind) || !is_type(kind));
    if !schema.is_object() || !says_object {
        return Err(vec!["must describe an object: arguments are one".to_owned()]);
    }
    let mut problems = Vec::new();
    remote(schema, "", &mut problems);
    dialect(schema, &mut problems);
    if !problems.is_empty() {
        problems.truncate(PROBLEMS_MAX);
        return Err(problems);
    }
    let options = jsonschema::options()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS_MAX))
        .offline();
    let validator = options
        .build(schema)
        .map_err(|error| vec![prefix_path(error.instance_path().as_str(), &describe_error(&error))])?;
    Ok(CompiledSchema {
        validator,
        shape: SchemaFields::of(schema),
        defaults: defaults(schema),
        schema: schema.clone(),
    })
}

fn defaults(schema: &Value) -> BTreeMap<String, Json> {
    let fields = schema.get("properties").and_then(Value::as_object);
    let default = |(name, field): (&String, &Value)| {
        let default = json::parse(&field.get("default")?.to_string()).ok()?;
        Some((name.clone(), default))
    };
    fields.into_iter().flatten().filter_map(default).collect()
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(members) => levels == 0 || members.values().any(|member| is_deeper(member, levels - 1)),
        Value::Array(items) => levels == 0 || items.iter().any(|item| is_deeper(item, levels - 1)),
        _ => false,
    }
}

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Wrong type names, and the intended ones.
const WRITTEN: [(&str, &str); 14] = [
    ("int", "integer"),
    ("int32", "integer"),
    ("int64", "integer"),
    ("long", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("decimal", "number"),
    ("str", "string"),
    ("text", "string"),
    ("date", "string with format: date"),
    ("bool", "boolean"),
    ("list", "array"),
    ("dict", "object"),
    ("map", "object"),
];

/// Description of a schema error in place of the library's, which is for programmers.
fn describe_error(error: &ValidationError<'_>) -> String {
    let (path, value) = (error.instance_path().as_str(), error.instance());
    let value = messages::shown_text(&messages::one_line(&value.to_string()));
    match (path.rsplit('/').next().unwrap_or_default(), error.kind()) {
        ("type", _) => {
            let text = error.instance().as_str().unwrap_or_default().to_lowercase();
            let written = WRITTEN.iter().find(|(written, _)| *written == text).map(|(_, meant)| *meant);
            match written.or_else(|| nearest(&text, &TYPES)) {
                Some(meant) => format!("is {value}; did you mean {meant}? It must be one of {}", TYPES.join(", ")),
                None => format!("is {value}; it must be one of {}", TYPES.join(", ")),
            }
        }
        ("required", _) => format!("is {value}; it must be a list of field names, beside `properties`"),
        ("pattern", _) => format!("is {value}, which is not a regular expression"),
        (_, ValidationErrorKind::Type { kind: TypeKind::Single(kind) }) => {
            format!("is {value}; it must be {}", a_kind(&format!("{kind:?}").to_lowercase()))
        }
        ("", _) => "is no JSON Schema that can be used: look at what its $ref names".to_owned(),
        _ => format!("is {value}, which JSON Schema does not allow here"),
    }
}

fn is_type(kind: &Value) -> bool {
    match kind {
        Value::String(kind) => TYPES.contains(&kind.as_str()),
        Value::Array(kinds) => kinds.iter().all(is_type),
        _ => false,
    }
}

/// All violations of dialect 2020-12; a schema of another dialect reports its first when it is compiled.
fn dialect(schema: &Value, problems: &mut Vec<String>) {
    let named = schema.get("$schema").and_then(Value::as_str);
    if named.is_some_and(|named| named.trim_end_matches('#') != DIALECT) {
        return;
    }
    for error in jsonschema::draft202012::meta::validator().iter_errors(schema).take(PROBLEMS_MAX) {
        problems.push(prefix_path(error.instance_path().as_str(), &describe_error(&error)));
    }
    problems.sort();
    problems.dedup();
}

/// References that leave the schema; those to an `$id` inside stay.
fn remote(schema: &Value, root: &str, problems: &mut Vec<String>) {
    let mut ids = Vec::new();
    visit_texts(schema, root, &mut |_, name, text| {
        if name == "$id" {
            ids.push(text.trim_end_matches('#').to_owned());
        }
    });
    visit_texts(schema, root, &mut |at, name, text| {
        let document = text.split('#').next().unwrap_or_default();
        let is_inside =
            document.is_empty() || ids.iter().any(|id| id == document || id.ends_with(&format!("/{document}")));
        if matches!(name, "$ref" | "$dynamicRef")
            && !is_inside
            && !document.starts_with("https://json-schema.org/draft")
        {
            let problem = format!("{name} {text} leads out of the schema; copy what it names under $defs");
            problems.push(prefix_path(at, &problem));
        }
    });
}

/// Visits every text member of every schema.
fn visit_texts(schema: &Value, at: &str, visit: &mut impl FnMut(&str, &str, &str)) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| !VALUES.contains(&name.as_str())) {
                if let Value::String(text) = member {
                    visit(at, name, text);
                }
                visit_texts(member, &format!("{at}/{name}"), visit);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| visit_texts(item, &format!("{at}/{i}"), visit));
        }
        _ => {}
    }
}

fn prefix_path(at: &str, problem: &str) -> String {
    if at.is_empty() { problem.to_owned() } else { format!("at {at}: {problem}") }
}
