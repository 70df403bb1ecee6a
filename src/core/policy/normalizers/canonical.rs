//! Canonicalization of arguments: the fields of the fingerprint, and their normalizers.

use std::collections::BTreeMap;

use super::Normalizer;
use crate::domain::json::Json;

/// Canonical fields and normalizers, by dotted paths: `customer.id`. A path applies to each member of a list:
/// `items.sku`. A key with a dot cannot be named.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Canonical {
    /// None is every field.
    fields: Vec<Vec<String>>,
    normalizers: Vec<(Vec<String>, Normalizer)>,
}

impl Canonical {
    /// The canonicalization by these fields (none is all) and normalizers.
    #[must_use]
    pub fn new(fields: &[String], normalizers: BTreeMap<String, Normalizer>) -> Self {
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        Self {
            fields: fields.iter().map(|field| path(field)).collect(),
            normalizers: normalizers.into_iter().map(|(field, normalizer)| (path(&field), normalizer)).collect(),
        }
    }

    /// The canonical text of arguments. Without fields and normalizers it is that of the unchanged arguments.
    #[must_use]
    pub fn text(&self, arguments: &Json) -> String {
        if self.normalizers.is_empty() && self.fields.is_empty() {
            return arguments.canonical();
        }
        let mut value = if self.fields.is_empty() {
            arguments.clone()
        } else {
            let paths: Vec<&[String]> = self.fields.iter().map(Vec::as_slice).collect();
            keep_paths(arguments, &paths)
        };
        for (path, normalizer) in &self.normalizers {
            change(&mut value, path, *normalizer);
        }
        value.canonical()
    }
}

/// The value reduced to the paths. Where a path continues below a scalar, the scalar stays: dropping it would merge
/// different calls.
fn keep_paths(value: &Json, paths: &[&[String]]) -> Json {
    if paths.iter().any(|path| path.is_empty()) {
        return value.clone();
    }
    match value {
        Json::Array(items) => Json::Array(items.iter().map(|item| keep_paths(item, paths)).collect()),
        Json::Object(members) => {
            let member = |(name, member): &(String, Json)| {
                let below: Vec<&[String]> =
                    paths.iter().filter(|path| path[0] == *name).map(|path| &path[1..]).collect();
                (!below.is_empty()).then(|| (name.clone(), keep_paths(member, &below)))
            };
            Json::Object(members.iter().filter_map(member).collect())
        }
        value => value.clone(),
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
