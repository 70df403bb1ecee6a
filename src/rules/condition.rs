//! Conditions that the policy's owner writes, in CEL: `args.check_out > args.check_in`, `args.amount_cents > 100000`,
//! `args.amount <= last('get_order').refundable`.
//!
//! A condition knows `args` (the call's arguments), `now`, `session` (`steps`, `calls`, `cost_usd`, `phase`), and two
//! functions beside CEL's own: `last(tool)`, the answer of an earlier call, and `date(text)`, a day at 00:00 UTC. It
//! is compiled once, has no side effects, and its time is bounded: no condition is longer than
//! [`CONDITION_BYTES_MAX`], and no macro over lists stands inside another.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, ExecutionError, Program, Value,
    common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue},
};
use chrono::{DateTime, FixedOffset, NaiveDate};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::domain::{json::Json, time::Timestamp};

/// Longest condition, in bytes.
pub const CONDITION_BYTES_MAX: usize = 2_000;

/// The variables that a condition may use.
const VARIABLES: [&str; 3] = ["args", "now", "session"];

static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A condition, compiled.
#[derive(Clone)]
pub struct Condition {
    text: Arc<str>,
    program: Arc<Program>,
    tools: Vec<String>,
    uses: [bool; 3],
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.text).finish()
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// What a condition may ask for.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The call's arguments.
    pub args: &'a Json,
    /// When it is judged.
    pub now: Timestamp,
    /// New call ids of the run so far.
    pub steps: u64,
    /// Permitted calls of the run so far.
    pub calls: u64,
    /// What the run has cost so far, in micro-dollars.
    pub cost_micros: u64,
    /// The session's phase.
    pub phase: Option<&'a str>,
    /// The answer of an earlier call, by tool.
    pub last: &'a dyn Fn(&str) -> Option<&'a Json>,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Why a condition is neither true nor false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionError {
    /// It asks for the answer of a tool that has not given one.
    NotCalled(String),
    /// It does not fit these values; one line that says how.
    Broken(String),
}

impl Condition {
    /// Compiles a condition.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > CONDITION_BYTES_MAX {
            return Err(format!("is {} bytes long; at most {CONDITION_BYTES_MAX} are allowed", text.len()));
        }
        let program = STANDARD.compile(text).map_err(|errors| match errors.errors.first() {
            Some(error) => format!("is no condition (CEL): column {}: {}", error.pos.1.max(1), one_line(&error.msg)),
            None => "is no condition (CEL)".to_owned(),
        })?;
        let mut found = Found::default();
        found.expression(program.expression(), false)?;
        let references = program.references();
        let names = references.variables().into_iter().filter(|name| !name.starts_with('@'));
        if let Some(unknown) = names.into_iter().find(|name| !VARIABLES.contains(name) && !found.bound.contains(name)) {
            let near = VARIABLES.iter().map(|known| (strsim::damerau_levenshtein(known, unknown), *known)).min();
            let meant = near.filter(|(edits, _)| *edits <= 2).map(|(_, known)| format!("; did you mean {known}?"));
            let known = VARIABLES.join(", ");
            return Err(format!("has no variable {unknown}; there are {known}{}", meant.unwrap_or_default()));
        }
        let uses = VARIABLES.map(|name| references.has_variable(name));
        let tools = found.tools;
        Ok(Self { text: text.into(), program: Arc::new(program), tools, uses })
    }

    /// The condition as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tools whose answers it asks for.
    #[must_use]
    pub fn tools(&self) -> Vec<String> {
        self.tools.clone()
    }

    /// Does it hold?
    ///
    /// # Errors
    /// [`ConditionError`] when that cannot be said.
    pub fn evaluate(&self, known: &Known<'_>) -> Result<bool, ConditionError> {
        let mut context = Context::with_env(Arc::clone(&STANDARD));
        let [args, now, session] = self.uses;
        if args {
            context.add_variable_from_value("args", self.value(known.args)?);
        }
        if now {
            let now = DateTime::from_timestamp_millis(known.now.as_millis()).unwrap_or_default();
            context.add_variable_from_value("now", Value::Timestamp(now.fixed_offset()));
        }
        if session {
            let cost_usd = known.cost_micros as f64 / 1e6;
            let session = BTreeMap::from([
                ("steps", Value::Int(i64::try_from(known.steps).unwrap_or(i64::MAX))),
                ("calls", Value::Int(i64::try_from(known.calls).unwrap_or(i64::MAX))),
                ("cost_usd", Value::Float(cost_usd)),
                ("phase", Value::String(Arc::new(known.phase.unwrap_or_default().to_owned()))),
            ]);
            context.add_variable_from_value("session", map(session));
        }
        let mut answers = BTreeMap::new();
        for tool in &self.tools {
            let answer = (known.last)(tool).ok_or_else(|| ConditionError::NotCalled(tool.clone()))?;
            answers.insert(tool.clone(), self.value(answer)?);
        }
        let last = move |tool: Arc<String>| answers.get(tool.as_str()).cloned().unwrap_or(Value::Null);
        let added = context.add_function("last", last).and_then(|()| context.add_function("date", date));
        added.map_err(|error| self.broken(&error.to_string()))?;
        match self.program.execute(&context) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err(self.broken("it is neither true nor false")),
            Err(ExecutionError::NoSuchKey(key)) => Err(self.broken(&format!("{key} is missing"))),
            Err(error) => Err(self.broken(&error.to_string())),
        }
    }

    fn value(&self, json: &Json) -> Result<Value, ConditionError> {
        cel::to_value(AsCel(json)).map_err(|error| self.broken(&error.to_string()))
    }

    fn broken(&self, problem: &str) -> ConditionError {
        ConditionError::Broken(format!("{} cannot be judged: {}", self.text, one_line(problem)))
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn map(members: BTreeMap<&str, Value>) -> Value {
    Value::Map(cel::objects::Map {
        map: Arc::new(members.into_iter().map(|(name, value)| (name.to_owned().into(), value)).collect()),
    })
}

/// A day, or the day of an instant, at 00:00 UTC.
fn date(text: Arc<String>) -> Result<Value, ExecutionError> {
    let day = text.get(..10).and_then(|day| NaiveDate::parse_from_str(day, "%Y-%m-%d").ok());
    let midnight = day.and_then(|day| day.and_hms_opt(0, 0, 0)).map(|at| at.and_utc().fixed_offset());
    let instant: Option<DateTime<FixedOffset>> = midnight;
    let problem = || ExecutionError::function_error("date", format!("{text:?} is no date like 2026-11-20"));
    instant.map(Value::Timestamp).ok_or_else(problem)
}

/// What an expression is made of.
#[derive(Default)]
struct Found<'a> {
    tools: Vec<String>,
    /// Variables that macros bind.
    bound: Vec<&'a str>,
}

impl<'a> Found<'a> {
    fn expression(&mut self, expression: &'a IdedExpr, in_macro: bool) -> Result<(), String> {
        match &expression.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Ok(()),
            Expr::Call(call) => self.call(call, in_macro),
            Expr::Comprehension(_) if in_macro => {
                Err("has a macro inside another; only one may stand alone".to_owned())
            }
            Expr::Comprehension(inner) => {
                self.bound.extend([inner.iter_var.as_str(), inner.accu_var.as_str()]);
                self.bound.extend(inner.iter_var2.as_deref());
                self.expression(&inner.iter_range, in_macro)?;
                [&inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
                    .into_iter()
                    .try_for_each(|part| self.expression(part, true))
            }
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.expression(item, in_macro)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr, in_macro)),
            Expr::Struct(made) => made.entries.iter().try_for_each(|entry| self.entry(&entry.expr, in_macro)),
            Expr::Select(select) => self.expression(&select.operand, in_macro),
        }
    }

    fn entry(&mut self, entry: &'a EntryExpr, in_macro: bool) -> Result<(), String> {
        match entry {
            EntryExpr::StructField(field) => self.expression(&field.value, in_macro),
            EntryExpr::MapEntry(entry) => {
                self.expression(&entry.key, in_macro)?;
                self.expression(&entry.value, in_macro)
            }
        }
    }

    fn call(&mut self, call: &'a CallExpr, in_macro: bool) -> Result<(), String> {
        if call.func_name == "last" {
            match call.args.as_slice() {
                [IdedExpr { expr: Expr::Literal(LiteralValue::String(tool)), .. }] => {
                    self.tools.push(tool.inner().to_owned());
                }
                _ => return Err("has last() without the name of a tool: write last('get_order')".to_owned()),
            }
        }
        let target = call.target.iter().map(|target| &**target);
        target.chain(&call.args).try_for_each(|part| self.expression(part, in_macro))
    }
}

/// JSON as CEL reads it: integers of 64 bits as such, all other numbers as doubles.
struct AsCel<'a>(&'a Json);

impl Serialize for AsCel<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(text) => match text.parse::<i64>() {
                Ok(integer) => serializer.serialize_i64(integer),
                Err(_) => serializer.serialize_f64(text.parse().unwrap_or(f64::MAX)),
            },
            Json::String(text) => serializer.serialize_str(text),
            Json::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(&AsCel(item)))?;
                list.end()
            }
            Json::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(name, member)| map.serialize_entry(name, &AsCel(member)))?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json;

    fn evaluate(text: &str, args: &str, last: &str) -> Result<bool, ConditionError> {
        let (args, last) = (json::parse(args).expect("valid"), json::parse(last).expect("valid"));
        let answer = |tool: &str| (tool == "get_order").then_some(&last);
        let now = Timestamp::from_millis(1_795_000_000_000);
        let known =
            Known { args: &args, now, steps: 3, calls: 2, cost_micros: 1_500_000, phase: Some("ACT"), last: &answer };
        Condition::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}")).evaluate(&known)
    }

    #[test]
    fn conditions_over_arguments_answers_and_the_session() {
        for (text, args, holds) in [
            ("args.amount_cents > 100000", r#"{"amount_cents":100001}"#, true),
            ("args.check_out > args.check_in", r#"{"check_in":"2026-05-01","check_out":"2026-04-30"}"#, false),
            (
                "date(args.check_out) > date(args.check_in)",
                r#"{"check_in":"2026-05-01","check_out":"2026-05-02"}"#,
                true,
            ),
            ("args.amount <= last('get_order').refundable", r#"{"amount":50}"#, true),
            ("args.amount <= last('get_order').refundable", r#"{"amount":50.6}"#, false),
            ("!has(args.note) || args.note.size() < 5", "{}", true),
            ("args.items.all(i, i.n > 0)", r#"{"items":[{"n":1},{"n":0}]}"#, false),
            ("session.phase == 'ACT' && session.cost_usd < 2.0 && session.steps == 3", "{}", true),
            ("now > timestamp('2026-01-01T00:00:00Z')", "{}", true),
            ("args.sql.matches('(?i)^select')", r#"{"sql":"SELECT 1"}"#, true),
        ] {
            assert_eq!(evaluate(text, args, r#"{"refundable":50.5}"#), Ok(holds), "{text} {args}");
        }
    }

    #[test]
    fn what_cannot_be_judged_says_why() {
        let broken = |text: &str, args: &str| match evaluate(text, args, "{}") {
            Err(ConditionError::Broken(problem)) => problem,
            other => panic!("{text}: {other:?}"),
        };
        assert!(broken("args.n > 1", "{}").contains("n is missing"), "{}", broken("args.n > 1", "{}"));
        assert!(broken("args.n", r#"{"n":1}"#).contains("neither true nor false"));
        assert!(broken("date(args.d) > now", r#"{"d":"soon"}"#).contains("no date"));
        assert_eq!(evaluate("last('pay').ok", "{}", "{}"), Err(ConditionError::NotCalled("pay".to_owned())));
    }

    #[test]
    fn bad_conditions_are_refused_when_they_are_read() {
        for (text, part) in [
            ("args.n >", "column"),
            ("arg.n > 1", "did you mean args?"),
            ("last(args.tool).n > 1", "write last('get_order')"),
            ("args.a.all(x, args.b.all(y, x == y))", "a macro inside another"),
        ] {
            let problem = Condition::parse(text).expect_err(text);
            assert!(problem.contains(part), "{text}: {problem}");
        }
        assert!(Condition::parse(&"a".repeat(CONDITION_BYTES_MAX + 1)).is_err());
    }
}
