//! The part of a tool's arguments by which its calls are known again, and its form.

use std::collections::BTreeMap;

use super::Normalizer;
use crate::domain::json::Json;

/// Canonical fields and normalisers, by dotted paths: `customer.id`. A path that meets a list goes on in each of its
/// members: `items.sku`. A member whose own name has a dot cannot be named.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Canonical {
    /// None is every field.
    fields: Vec<Vec<String>>,
    normalizers: Vec<(Vec<String>, Normalizer)>,
}

impl Canonical {
    /// The form that these fields (none is all) have after these normalisers ran.
    #[must_use]
    pub fn new(fields: &[String], normalizers: BTreeMap<String, Normalizer>) -> Self {
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        Self {
            fields: fields.iter().map(|field| path(field)).collect(),
            normalizers: normalizers.into_iter().map(|(field, normalizer)| (path(&field), normalizer)).collect(),
        }
    }

    /// The canonical text of arguments. Without fields and normalisers it is that of the arguments as they are.
    #[must_use]
    pub fn text(&self, arguments: &Json) -> String {
        if self.normalizers.is_empty() && self.fields.is_empty() {
            return arguments.canonical();
        }
        let mut value = if self.fields.is_empty() {
            arguments.clone()
        } else {
            let paths: Vec<&[String]> = self.fields.iter().map(Vec::as_slice).collect();
            kept(arguments, &paths)
        };
        for (path, normalizer) in &self.normalizers {
            change(&mut value, path, *normalizer);
        }
        value.canonical()
    }
}

/// The value with only what the paths lead to. Where a path leads on but the value is neither an object nor a list, the
/// value stays whole: dropping it would make different calls one.
fn kept(value: &Json, paths: &[&[String]]) -> Json {
    if paths.iter().any(|path| path.is_empty()) {
        return value.clone();
    }
    match value {
        Json::Array(items) => Json::Array(items.iter().map(|item| kept(item, paths)).collect()),
        Json::Object(members) => {
            let member = |(name, member): &(String, Json)| {
                let below: Vec<&[String]> =
                    paths.iter().filter(|path| path[0] == *name).map(|path| &path[1..]).collect();
                (!below.is_empty()).then(|| (name.clone(), kept(member, &below)))
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
