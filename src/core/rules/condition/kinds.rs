//! Type check of a condition when the policy is read: a field that the tool's schema lacks, a text compared with a
//! number, a value that no argument can have.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, SelectExpr};
use serde_json::Value;

use super::{check::answer_place, messages::nearest};

/// Type of a value, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// True or false.
    Bool,
    /// Any number.
    Number,
    /// A text.
    Text,
    /// A list.
    List,
    /// An object.
    Map,
    /// A point in time.
    Time,
    /// A duration.
    Span,
    /// Unknown.
    Any,
}

impl ValueType {
    fn as_text(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Map => "an object",
            Self::Time => "a time",
            Self::Span => "a length of time",
            Self::Any => "anything",
        }
    }

    fn of(schema: &Value) -> Self {
        let kind = match schema.get("type") {
            Some(Value::String(kind)) => Some(kind.as_str()),
            Some(Value::Array(kinds)) => {
                let mut real = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
                real.next().filter(|_| real.next().is_none())
            }
            _ => None,
        };
        match kind {
            Some("boolean") => Self::Bool,
            Some("integer" | "number") => Self::Number,
            Some("string") => Self::Text,
            Some("array") => Self::List,
            Some("object") => Self::Map,
            _ => Self::Any,
        }
    }
}

/// A mismatch, in one line that follows the condition's position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The problem.
    pub problem: String,
    /// False when it is valid for some call.
    pub is_certain: bool,
}

/// Known types of the values that a condition reads.
pub(super) struct KnownTypes<'a> {
    /// The JSON Schema of the arguments.
    pub(super) args: Option<&'a Value>,
    /// The tools whose answers it reads, in order, with the known members of their answers.
    pub(super) answers: &'a [(String, Vec<(String, ValueType)>)],
}

/// A value in an expression: its type, and its schema if there is one.
#[derive(Clone, Copy)]
struct TypedValue<'a> {
    kind: ValueType,
    schema: Option<&'a Value>,
}

const ANY: TypedValue<'static> = TypedValue { kind: ValueType::Any, schema: None };

pub(super) fn misfits(expression: &IdedExpr, known: &KnownTypes<'_>) -> Vec<Misfit> {
    let mut check = Check { known, asked: Vec::new(), found: Vec::new() };
    collect_tested_fields(expression, &mut check.asked);
    let whole = check.infer_type(expression);
    if !matches!(whole.kind, ValueType::Bool | ValueType::Any) {
        check.wrong(format!("gives {}, not true or false", whole.kind.as_text()));
    }
    let mut found = check.found;
    found.dedup();
    found
}

/// The fields of `args` that the condition tests with `has`.
fn collect_tested_fields(at: &IdedExpr, found: &mut Vec<String>) {
    if let Some(path) = path_of(at).filter(|_| matches!(&at.expr, Expr::Select(select) if select.test)) {
        found.push(path);
    }
    visit_expressions(at, &mut |part| collect_tested_fields(part, found));
}

/// `args.a.b` as `a.b`.
fn path_of(at: &IdedExpr) -> Option<String> {
    let Expr::Select(SelectExpr { operand, field, .. }) = &at.expr else { return None };
    match &operand.expr {
        Expr::Ident(name) if name == "args" => Some(field.clone()),
        _ => Some(format!("{}.{field}", path_of(operand)?)),
    }
}

fn visit_expressions(at: &IdedExpr, visit: &mut dyn FnMut(&IdedExpr)) {
    match &at.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(visit),
        Expr::Select(select) => visit(&select.operand),
        Expr::List(list) => list.elements.iter().for_each(visit),
        Expr::Comprehension(inner) => {
            [&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
                .into_iter()
                .for_each(visit);
        }
        _ => {}
    }
}

struct Check<'a> {
    known: &'a KnownTypes<'a>,
    asked: Vec<String>,
    found: Vec<Misfit>,
}

impl<'a> Check<'a> {
    fn wrong(&mut self, problem: String) {
        self.found.push(Misfit { problem, is_certain: true });
    }

    fn doubtful(&mut self, problem: String) {
        self.found.push(Misfit { problem, is_certain: false });
    }

    fn infer_type(&mut self, at: &IdedExpr) -> TypedValue<'a> {
        let of = |kind| TypedValue { kind, schema: None };
        match &at.expr {
            Expr::Literal(literal) => of(match literal {
                LiteralValue::Boolean(_) => ValueType::Bool,
                LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => ValueType::Number,
                LiteralValue::String(_) => ValueType::Text,
                LiteralValue::Bytes(_) | LiteralValue::Null => ValueType::Any,
            }),
            Expr::Ident(name) if name == "args" => TypedValue { kind: ValueType::Map, schema: self.known.args },
            Expr::Ident(name) if name == "now" => of(ValueType::Time),
            Expr::Select(select) => self.select(at, select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                list.elements.iter().for_each(|item| {
                    self.infer_type(item);
                });
                of(ValueType::List)
            }
            Expr::Map(_) => of(ValueType::Map),
            Expr::Comprehension(_) => {
                visit_expressions(at, &mut |part| {
                    self.infer_type(part);
                });
                ANY
            }
            _ => ANY,
        }
    }

    fn select(&mut self, at: &IdedExpr, select: &SelectExpr) -> TypedValue<'a> {
        let field = select.field.as_str();
        let found = match &select.operand.expr {
            Expr::Ident(name) if name == "session" => {
                TypedValue { kind: if field == "phase" { ValueType::Text } else { ValueType::Number }, schema: None }
            }
            Expr::Ident(name) if answer_place(name).is_some() => self.answer(name, field),
            _ => {
                let around = self.infer_type(&select.operand);
                self.member(around, at, field)
            }
        };
        if select.test { TypedValue { kind: ValueType::Bool, schema: None } } else { found }
    }

    /// A member of an earlier answer: only misspellings of known members can be reported.
    fn answer(&mut self, name: &str, field: &str) -> TypedValue<'a> {
        let Some((tool, members)) = answer_place(name).and_then(|place| self.known.answers.get(place)) else {
            return ANY;
        };
        if let Some((_, kind)) = members.iter().find(|(member, _)| member == field) {
            return TypedValue { kind: *kind, schema: None };
        }
        let names: Vec<&str> = members.iter().map(|(member, _)| member.as_str()).collect();
        if let Some(meant) = nearest(field, &names) {
            self.doubtful(format!("reads {field} of {tool}'s answer; did you mean {meant}?"));
        }
        ANY
    }

    fn member(&mut self, around: TypedValue<'a>, at: &IdedExpr, field: &str) -> TypedValue<'a> {
        let Some(schema) = around.schema else { return ANY };
        let Some(known) = schema.get("properties").and_then(Value::as_object) else { return ANY };
        let path = path_of(at).unwrap_or_else(|| field.to_owned());
        if let Some(member) = known.get(field) {
            let is_required = schema.get("required").and_then(Value::as_array);
            let is_required = is_required.is_some_and(|names| names.iter().any(|name| name == field));
            let is_test = matches!(&at.expr, Expr::Select(select) if select.test);
            if !is_required && !is_test && !self.asked.contains(&path) && member.get("default").is_none() {
                let problem = format!("reads args.{path}, which may be missing: write has(args.{path}) && … first");
                self.doubtful(problem);
            }
            return TypedValue { kind: ValueType::of(member), schema: Some(member) };
        }
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let is_closed = schema.get("additionalProperties").is_some_and(|more| *more == Value::Bool(false));
        let meant = nearest(field, &names);
        let hint = match meant {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("it has {}", names.join(", ")),
        };
        let problem = format!("reads args.{path}, which the schema has not; {hint}");
        self.found.push(Misfit { problem, is_certain: is_closed || meant.is_some() });
        ANY
    }

    fn call(&mut self, call: &CallExpr) -> TypedValue<'a> {
        let parts: Vec<TypedValue<'a>> =
            call.target.as_deref().into_iter().chain(&call.args).map(|part| self.infer_type(part)).collect();
        let kinds: Vec<ValueType> = parts.iter().map(|part| part.kind).collect();
        let kind = match (call.func_name.as_str(), kinds.as_slice()) {
            ("_&&_" | "_||_", sides) => {
                for side in sides.iter().filter(|side| !matches!(side, ValueType::Bool | ValueType::Any)) {
                    let operator = call.func_name.trim_matches('_');
                    self.wrong(format!("gives {operator} {}, where it wants true or false", side.as_text()));
                }
                ValueType::Bool
            }
            ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => {
                self.check_comparison(call.func_name.trim_matches('_'), *a, *b);
                self.options(&call.args, &parts);
                ValueType::Bool
            }
            ("_+_" | "_-_", [a, b]) => match (a, b) {
                (ValueType::Time, ValueType::Time) => ValueType::Span,
                (ValueType::Time, ValueType::Span) | (ValueType::Span, ValueType::Time) => ValueType::Time,
                _ => self.infer_arithmetic(call.func_name.trim_matches('_'), *a, *b),
            },
            ("_*_" | "_/_" | "_%_", [a, b]) => self.infer_arithmetic(call.func_name.trim_matches('_'), *a, *b),
            ("startsWith" | "endsWith" | "contains" | "@matches" | "matches", [of, ..]) => {
                if !matches!(of, ValueType::Text | ValueType::Any) {
                    let name = call.func_name.trim_start_matches('@');
                    self.wrong(format!("asks {} for {name}(), which only a text has", of.as_text()));
                }
                ValueType::Bool
            }
            ("size", [ValueType::Number | ValueType::Bool | ValueType::Time]) => {
                self.wrong("asks for the size() of what has none".to_owned());
                ValueType::Number
            }
            ("size" | "int" | "uint" | "double" | "-_", _) => ValueType::Number,
            ("string", _) => ValueType::Text,
            ("date" | "timestamp", _) => ValueType::Time,
            ("duration", _) => ValueType::Span,
            ("!_" | "@in" | "bool" | "hasValue", _) => ValueType::Bool,
            _ => ValueType::Any,
        };
        TypedValue { kind, schema: None }
    }

    fn check_comparison(&mut self, operator: &str, a: ValueType, b: ValueType) {
        if a == b || [a, b].contains(&ValueType::Any) {
            return;
        }
        let is_time = [a, b].contains(&ValueType::Time) && [a, b].contains(&ValueType::Text);
        let how = if is_time { "; date(…) and timestamp(…) read a text as a time" } else { "" };
        self.wrong(format!("compares {} with {} ({operator}), which never works{how}", a.as_text(), b.as_text()));
    }

    fn infer_arithmetic(&mut self, operator: &str, a: ValueType, b: ValueType) -> ValueType {
        if a != b && ![a, b].contains(&ValueType::Any) {
            let how = "int(…), double(…) and string(…) convert";
            self.wrong(format!("computes {} {operator} {}, which never works; {how}", a.as_text(), b.as_text()));
        }
        if a == ValueType::Any { b } else { a }
    }

    /// Compares with a literal outside the schema's `enum`, which no argument equals.
    fn options(&mut self, args: &[IdedExpr], parts: &[TypedValue<'a>]) {
        for (literal, other) in args.iter().zip(parts.iter().rev()) {
            let Expr::Literal(LiteralValue::String(text)) = &literal.expr else { continue };
            let options = other.schema.and_then(|schema| schema.get("enum")).and_then(Value::as_array);
            let options: Vec<&str> = options.into_iter().flatten().filter_map(Value::as_str).collect();
            if !options.is_empty() && !options.contains(&text.inner()) {
                let hint = nearest(text.inner(), &options).map(|meant| format!("; did you mean '{meant}'?"));
                let hint = hint.unwrap_or_else(|| format!("; it is one of {}", options.join(", ")));
                self.wrong(format!("compares with '{}', which the argument never is{hint}", text.inner()));
            }
        }
    }
}
