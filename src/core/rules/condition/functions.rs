//! Functions of conditions beside CEL's own.

use std::{
    any::Any,
    sync::{Arc, LazyLock},
};

use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        types::{
            self, CelBool, CelList, CelMap, CelString, CelTimestamp, LIST_TYPE, MAP_TYPE, STRING_TYPE, TIMESTAMP_TYPE,
        },
        value::{CowVal, StaticVal, Val},
    },
};
use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use regex::Regex;

use super::ITEMS_MAX;

/// Items of a macro: the members of a list, or the names of an object in order.
pub(super) const ITEMS: &str = "@items";
/// Match of a compiled pattern.
pub(super) const MATCHES: &str = "@matches";

/// CEL's standard environment and these functions.
#[expect(clippy::expect_used, reason = "the names are distinct, and a test parses conditions with them")]
pub(super) static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(env().expect("distinct names")));

fn env() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    env.add_overload(ITEMS, "items_of_list", vec![LIST_TYPE], items_of_list)?;
    env.add_overload(ITEMS, "items_of_map", vec![MAP_TYPE], items_of_map)?;
    env.add_overload(MATCHES, "matches_pattern", vec![STRING_TYPE, PATTERN.to_owned()], matches)?;
    env.add_overload("date", "date_of_string", vec![STRING_TYPE], date_of_string)?;
    env.add_overload("date", "date_of_timestamp", vec![TIMESTAMP_TYPE], date_of_timestamp)?;
    Ok(env)
}

static PATTERN: types::Type = types::Type::new_unspecified_type("pattern");

/// A pattern, compiled with its condition.
#[derive(Debug)]
pub(super) struct CompiledPattern(pub(super) Regex);

impl Val for CompiledPattern {
    fn get_type(&self) -> &types::Type {
        &PATTERN
    }

    fn cel_type() -> &'static types::Type {
        &PATTERN
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self(self.0.clone()))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for CompiledPattern {}

type FunctionResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn argument<'a, 'b, 'v>(values: &'a [CowVal<'b, 'v>], at: usize) -> Result<&'a (dyn Val + 'v), ExecutionError> {
    values.get(at).map(|value| value.as_ref()).ok_or_else(ExecutionError::missing_argument_or_target)
}

fn too_many() -> ExecutionError {
    let problem = format!("a list of more than {ITEMS_MAX} members is too long for a macro");
    ExecutionError::function_error(ITEMS, problem)
}

fn items_of_list<'b, 'v>(mut values: Vec<CowVal<'b, 'v>>) -> FunctionResult<'b, 'v> {
    let size = argument(&values, 0)?.downcast_ref::<CelList<'_>>().map_or(0, |list| list.inner().len());
    if size > ITEMS_MAX { Err(too_many()) } else { values.pop().ok_or_else(too_many) }
}

fn items_of_map<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> FunctionResult<'b, 'v> {
    let mut names: Vec<_> =
        argument(&values, 0)?.downcast_ref::<CelMap<'_>>().map(|map| map.keys().cloned().collect()).unwrap_or_default();
    if names.len() > ITEMS_MAX {
        return Err(too_many());
    }
    names.sort();
    let names: Vec<Box<dyn Val + 'v>> = names.iter().map(|name| name.inner().clone_as_boxed()).collect();
    Ok(CowVal::owned(CelList::from(names)))
}

fn matches<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> FunctionResult<'b, 'v> {
    let text = argument(&values, 0)?.downcast_ref::<CelString<'_>>().map_or("", |text| text.inner());
    let pattern = argument(&values, 1)?.downcast_ref::<CompiledPattern>();
    Ok(CowVal::owned(CelBool::from(pattern.is_some_and(|pattern| pattern.0.is_match(text)))))
}

fn midnight<'b, 'v>(day: NaiveDate) -> FunctionResult<'b, 'v> {
    Ok(CowVal::owned(CelTimestamp::from(day.and_time(NaiveTime::MIN).and_utc().fixed_offset())))
}

/// A day, or the UTC day of an instant.
fn date_of_string<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> FunctionResult<'b, 'v> {
    let text = argument(&values, 0)?.downcast_ref::<CelString<'_>>().map_or("", |text| text.inner());
    let is_plain = text.len() == 10 && text.is_ascii();
    let day = if is_plain {
        NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()
    } else {
        DateTime::parse_from_rfc3339(text).ok().map(|at| at.with_timezone(&Utc).date_naive())
    };
    let shown: String = text.chars().take(40).collect();
    let problem = || ExecutionError::function_error("date", format!("{shown:?} is not a date like 2026-11-20"));
    midnight(day.ok_or_else(problem)?)
}

fn date_of_timestamp<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> FunctionResult<'b, 'v> {
    let at = argument(&values, 0)?.downcast_ref::<CelTimestamp>().map(|at| at.inner().with_timezone(&Utc));
    midnight(at.unwrap_or_default().date_naive())
}
