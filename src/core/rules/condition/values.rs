//! JSON values as CEL values: strings are borrowed, and only the members that the condition names are taken.

use cel::common::{
    types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt},
    value::Val,
};

use super::{Bindings, check::ReadFields};
use crate::domain::json::Json;

type BoxedValue<'a> = Box<dyn Val + 'a>;

/// The value with the named members; none if it exceeds `left`.
pub(super) fn fields<'a>(json: &'a Json, fields: &ReadFields, left: &mut usize) -> Option<BoxedValue<'a>> {
    match (json, fields) {
        (Json::Object(members), ReadFields::Named(names)) => {
            object(members.iter().filter(|(name, _)| names.contains(name)), left)
        }
        _ => value(json, left),
    }
}

/// The session variables of a condition.
pub(super) fn session<'a>(known: &Bindings<'a>) -> BoxedValue<'a> {
    let int = |count: u64| -> BoxedValue<'a> { Box::new(CelInt::from(i64::try_from(count).unwrap_or(i64::MAX))) };
    let phase = known.phase.unwrap_or_default();
    let members: [(&str, BoxedValue<'a>); 4] = [
        ("steps", int(known.steps)),
        ("calls", int(known.calls)),
        ("cost_usd", Box::new(CelDouble::from(known.cost_micros as f64 / 1e6))),
        ("phase", Box::new(CelString::from(phase))),
    ];
    let mut entries = CelMap::default().into_inner();
    entries.extend(members.map(|(name, value)| (CelMapKey::from(name), value)));
    Box::new(CelMap::from(entries))
}

fn object<'a>(members: impl Iterator<Item = &'a (String, Json)>, left: &mut usize) -> Option<BoxedValue<'a>> {
    let mut entries = CelMap::default().into_inner();
    for (name, member) in members {
        entries.insert(CelMapKey::from(name.as_str()), value(member, left)?);
    }
    Some(Box::new(CelMap::from(entries)))
}

fn value<'a>(json: &'a Json, left: &mut usize) -> Option<BoxedValue<'a>> {
    *left = left.checked_sub(1)?;
    Some(match json {
        Json::Null => Box::new(CelNull),
        Json::Bool(value) => Box::new(CelBool::from(*value)),
        Json::Number(text) => number(text),
        Json::String(text) => Box::new(CelString::from(text.as_str())),
        Json::Array(items) => {
            let items: Option<Vec<BoxedValue<'a>>> = items.iter().map(|item| value(item, left)).collect();
            Box::new(CelList::from(items?))
        }
        Json::Object(members) => object(members.iter(), left)?,
    })
}

fn number<'a>(text: &str) -> BoxedValue<'a> {
    if let Ok(integer) = text.parse::<i64>() {
        return Box::new(CelInt::from(integer));
    }
    match text.parse::<u64>() {
        Ok(integer) => Box::new(CelUInt::from(integer)),
        Err(_) => Box::new(CelDouble::from(text.parse::<f64>().unwrap_or(f64::NAN))),
    }
}
