//! Values that can be read as the type that a schema wants, without loss.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

use super::{ArgumentSchema, COERCIONS_MAX, as_value, words};
use crate::domain::{
    json::{self, Json},
    violation::CoercedField,
};

impl ArgumentSchema {
    /// Reads values as the types that the schema wants, one after the other, as far as that goes.
    pub(super) fn coerce(&self, arguments: &mut Json, value: &mut Value) -> Vec<CoercedField> {
        let mut coerced = Vec::new();
        let mut tried: Vec<String> = Vec::new();
        while coerced.len() < COERCIONS_MAX {
            let found = self.validator.iter_errors(value).find_map(|error| {
                let pointer = error.instance_path().as_str().to_owned();
                let ValidationErrorKind::Type { kind } = error.kind() else { return None };
                (!tried.contains(&pointer)).then(|| (pointer, wanted(kind)))
            });
            let Some((pointer, kind)) = found else { break };
            tried.push(pointer.clone());
            let steps: Vec<String> =
                pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
            let Some(at) = reach(arguments, &steps) else { continue };
            let Some(read) = read(at, &kind) else { continue };
            let (from, to) = (at.canonical(), read.as_ref().map_or_else(|| "absent".to_owned(), Json::canonical));
            match read {
                Some(read) => *at = read,
                None => arguments.remove(&pointer),
            }
            *value = as_value(arguments);
            coerced.push(CoercedField { field: words::dotted(&pointer), from, to });
        }
        coerced
    }
}

fn reach<'a>(at: &'a mut Json, steps: &[String]) -> Option<&'a mut Json> {
    let Some((step, rest)) = steps.split_first() else { return Some(at) };
    match at {
        Json::Object(members) => {
            let member = members.iter_mut().find(|(name, _)| name == step)?;
            reach(&mut member.1, rest)
        }
        Json::Array(items) => reach(items.get_mut(step.parse::<usize>().ok()?)?, rest),
        _ => None,
    }
}

/// The value as one of the wanted types: the first that takes it. An inner none takes it away: a null is as good as
/// nothing, where nothing is allowed; the schema says so when it is looked at again.
fn read(value: &Json, wanted: &[String]) -> Option<Option<Json>> {
    if *value == Json::Null {
        return Some(None);
    }
    wanted.iter().find_map(|kind| as_kind(value, kind)).map(Some)
}

fn as_kind(value: &Json, kind: &str) -> Option<Json> {
    let parsed = |text: &str| json::parse(text.trim()).ok();
    match (kind, value) {
        ("integer", Json::String(text)) => parsed(text).filter(|read| is_number(read, true)),
        ("number", Json::String(text)) => parsed(text).filter(|read| is_number(read, false)),
        ("boolean", Json::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Some(Json::Bool(true)),
            "false" => Some(Json::Bool(false)),
            _ => None,
        },
        ("string", Json::Number(_) | Json::Bool(_)) => Some(Json::String(value.canonical())),
        ("object", Json::String(text)) => parsed(text).filter(|read| matches!(read, Json::Object(_))),
        ("array", Json::String(text)) => {
            let list = parsed(text).filter(|read| matches!(read, Json::Array(_)));
            Some(list.unwrap_or_else(|| Json::Array(vec![value.clone()])))
        }
        ("array", value) => Some(Json::Array(vec![value.clone()])),
        _ => None,
    }
}

fn wanted(kind: &TypeKind) -> Vec<String> {
    match kind {
        TypeKind::Single(kind) => vec![kind.to_string()],
        TypeKind::Multiple(kinds) => kinds.iter().map(|kind| kind.to_string()).collect(),
    }
}

fn is_number(json: &Json, integer: bool) -> bool {
    matches!(json, Json::Number(text) if !integer || !text.contains(['.', 'e']))
}
