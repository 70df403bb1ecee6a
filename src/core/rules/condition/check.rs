//! Static check and rewriting of a condition when the policy is read, so that evaluation only computes.
//!
//! Three parts are replaced, under names that cannot be written: `last('x')` by the answer, a literal pattern by the
//! compiled one, and the operand of a macro by its bounded, ordered items.

use cel::{
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr},
    parser::PrattParser,
};
use regex::Regex;

use super::{
    CONDITION_BYTES_MAX,
    functions::{ITEMS, MATCHES},
    messages::{self, suggest_name},
};

/// Maximum nesting depth of an expression, because its evaluation is recursive.
const DEPTH_MAX: usize = 24;
const VARIABLES: [&str; 3] = ["args", "now", "session"];
const SESSION: [&str; 4] = ["steps", "calls", "cost_usd", "phase"];
/// Names of types, for `type(args.n) == int`.
const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "optional_type"];
const OPTIONAL: [&str; 3] = ["none", "of", "ofNonZeroValue"];
/// CEL's own functions and macros, and ours.
pub(super) const FUNCTIONS: [&str; 41] = [
    "all",
    "bool",
    "bytes",
    "contains",
    "date",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "exists",
    "existsOne",
    "exists_one",
    "filter",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "has",
    "hasValue",
    "int",
    "last",
    "map",
    "matches",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
    "value",
    "optional",
];

/// Members of a value that a condition reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadFields {
    All,
    /// By name; none at all if the value is not read.
    Named(Vec<String>),
}

impl Default for ReadFields {
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

impl ReadFields {
    fn add(&mut self, name: &str) {
        if let Self::Named(names) = self
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
        }
    }
}

/// Inputs of a condition's evaluation.
#[derive(Debug, Default)]
pub(super) struct ConditionInputs {
    pub(super) args: ReadFields,
    pub(super) now: bool,
    pub(super) session: bool,
    pub(super) last: Vec<(String, ReadFields)>,
    pub(super) patterns: Vec<Regex>,
}

/// Internal name of an answer.
pub(super) fn answer_name(i: usize) -> String {
    format!("@last{i}")
}

/// Index of the answer with that internal name.
pub(super) fn answer_place(name: &str) -> Option<usize> {
    name.strip_prefix("@last")?.parse().ok()
}

/// Internal name of a pattern.
pub(super) fn pattern_name(i: usize) -> String {
    format!("@pattern{i}")
}

pub(super) fn compile(text: &str) -> Result<(IdedExpr, ConditionInputs), String> {
    if text.len() > CONDITION_BYTES_MAX {
        return Err(format!("is {} bytes long; at most {CONDITION_BYTES_MAX} are allowed", text.len()));
    }
    if text.trim().is_empty() {
        return Err("is empty; write a condition like args.amount_cents > 100000".to_owned());
    }
    let parsed = PrattParser::new().enable_optional_syntax(true).parse(text);
    let mut expression =
        parsed.map_err(|errors| messages::unreadable(text, errors.errors.first().map(|error| error.pos)))?;
    let mut check = Check { text, wants: ConditionInputs::default(), bound: Vec::new(), depth: 0 };
    check.expression(&mut expression, false)?;
    Ok((expression, check.wants))
}

struct Check<'a> {
    text: &'a str,
    wants: ConditionInputs,
    /// Variables of the enclosing macros.
    bound: Vec<String>,
    /// Depth of the enclosing expressions.
    depth: usize,
}

impl Check<'_> {
    /// A problem with a name, with its column if unique.
    fn at(&self, name: &str, problem: &str) -> String {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let mut places = self.text.match_indices(name).map(|(at, _)| at).filter(|at| {
            let (before, after) = (&self.text[..*at], &self.text[at + name.len()..]);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        });
        match (places.next(), places.next()) {
            (Some(at), None) => format!("{problem} (column {})", self.text[..at].chars().count() + 1),
            _ => problem.to_owned(),
        }
    }

    fn expression(&mut self, at: &mut IdedExpr, in_macro: bool) -> Result<(), String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("is nested deeper than {DEPTH_MAX} levels; split it into several conditions"));
        }
        self.depth += 1;
        let checked = self.check_part(at, in_macro);
        self.depth -= 1;
        checked
    }

    fn check_part(&mut self, at: &mut IdedExpr, in_macro: bool) -> Result<(), String> {
        match &mut at.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Call(_) => self.call(at, in_macro),
            Expr::Comprehension(inner) if !in_macro => self.comprehension(inner),
            Expr::Comprehension(_) => {
                Err("has a macro inside another; one may only follow another, as in a.filter(…).all(…)".to_owned())
            }
            Expr::List(list) => list.elements.iter_mut().try_for_each(|item| self.expression(item, in_macro)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::StructField(field) => self.expression(&mut field.value, in_macro),
                EntryExpr::MapEntry(entry) => {
                    self.expression(&mut entry.key, in_macro)?;
                    self.expression(&mut entry.value, in_macro)
                }
            }),
            Expr::Struct(made) => {
                Err(self.at(&made.type_name, &format!("makes a {}, which no condition can", made.type_name)))
            }
            Expr::Select(select) => self.select(select, in_macro),
        }
    }

    fn is_bound(&self, name: &str) -> bool {
        name.starts_with('@') || self.bound.iter().any(|bound| bound == name)
    }

    /// Checks a variable as a whole.
    fn variable(&mut self, name: &str) -> Result<(), String> {
        match name {
            name if self.is_bound(name) => {}
            "args" => self.wants.args = ReadFields::All,
            "now" => self.wants.now = true,
            "session" => self.wants.session = true,
            name if TYPES.contains(&name) => {}
            unknown => {
                let problem = match suggest_name(unknown, &VARIABLES) {
                    Some(meant) => format!("has no variable {unknown}; {meant}"),
                    None => format!("has no variable {unknown}; the variables are {}", VARIABLES.join(", ")),
                };
                return Err(self.at(unknown, &problem));
            }
        }
        Ok(())
    }

    fn select(&mut self, select: &mut SelectExpr, in_macro: bool) -> Result<(), String> {
        if self.is_answer(&select.operand) {
            let answer = self.answer(&mut select.operand)?;
            self.wants.last[answer].1.add(&select.field);
            return Ok(());
        }
        match &select.operand.expr {
            Expr::Ident(name) if name == "args" && !self.is_bound(name) => self.wants.args.add(&select.field),
            Expr::Ident(name) if name == "session" && !self.is_bound(name) => {
                if !SESSION.contains(&select.field.as_str()) {
                    let known = suggest_name(&select.field, &SESSION);
                    let known = known.unwrap_or_else(|| format!("there are {}", SESSION.join(", ")));
                    return Err(self.at(&select.field, &format!("has no session.{}; {known}", select.field)));
                }
                self.wants.session = true;
            }
            _ => return self.expression(&mut select.operand, in_macro),
        }
        Ok(())
    }

    fn call(&mut self, at: &mut IdedExpr, in_macro: bool) -> Result<(), String> {
        if self.is_answer(at) {
            let answer = self.answer(at)?;
            self.wants.last[answer].1 = ReadFields::All;
            return Ok(());
        }
        let Expr::Call(call) = &mut at.expr else { return Ok(()) };
        if let Some(name) = indexed_literal(call) {
            // `args['x']` is `args.x`
            let name = name.to_owned();
            if self.is_answer(&call.args[0]) {
                let answer = self.answer(&mut call.args[0])?;
                self.wants.last[answer].1.add(&name);
                return Ok(());
            }
            if matches!(&call.args[0].expr, Expr::Ident(of) if of == "args" && !self.is_bound(of)) {
                self.wants.args.add(&name);
                return Ok(());
            }
        }
        self.function(call)?;
        self.pattern(call)?;
        if let Some(target) = &mut call.target {
            let is_namespace = matches!(&target.expr, Expr::Ident(name) if name == "optional" && !self.is_bound(name));
            if !is_namespace {
                self.expression(target, in_macro)?;
            }
        }
        call.args.iter_mut().try_for_each(|part| self.expression(part, in_macro))
    }

    fn function(&self, call: &CallExpr) -> Result<(), String> {
        let name = call.func_name.as_str();
        let namespace = call.target.as_ref().map(|target| &target.expr);
        let known: &[&str] = match namespace {
            Some(Expr::Ident(namespace)) if namespace == "optional" && !self.is_bound(namespace) => &OPTIONAL,
            _ => &FUNCTIONS,
        };
        // Operators have no letters, or begin with `@`.
        let is_operator = name.starts_with('@') || !name.contains(|c: char| c.is_ascii_alphabetic());
        if is_operator || known.contains(&name) {
            return Ok(());
        }
        let meant = suggest_name(name, known).unwrap_or_else(|| "see CEL's functions, last() and date()".to_owned());
        Err(self.at(name, &format!("has no function {name}; {meant}")))
    }

    fn is_answer(&self, at: &IdedExpr) -> bool {
        matches!(&at.expr, Expr::Call(call) if call.func_name == "last")
    }

    /// Replaces `last('tool')` by its answer; returns the index.
    fn answer(&mut self, at: &mut IdedExpr) -> Result<usize, String> {
        let named = match &at.expr {
            Expr::Call(CallExpr { target: None, args, .. }) => match args.as_slice() {
                [IdedExpr { expr: Expr::Literal(LiteralValue::String(tool)), .. }] if !tool.inner().is_empty() => {
                    Some(tool.inner().to_owned())
                }
                _ => None,
            },
            _ => None,
        };
        let Some(tool) = named else {
            return Err(self.at("last", "has last() without the name of a tool in quotes: write last('get_order')"));
        };
        let known = self.wants.last.iter().position(|(known, _)| *known == tool);
        let i = known.unwrap_or_else(|| {
            self.wants.last.push((tool, ReadFields::default()));
            self.wants.last.len() - 1
        });
        at.expr = Expr::Ident(answer_name(i));
        Ok(i)
    }

    /// Compiles a literal pattern.
    fn pattern(&mut self, call: &mut CallExpr) -> Result<(), String> {
        let is_written = |at: &IdedExpr| matches!(&at.expr, Expr::Literal(LiteralValue::String(_)));
        let places = usize::from(call.target.is_none()) + 1;
        if call.func_name != "matches" || call.args.len() != places || !call.args.last().is_some_and(is_written) {
            return Ok(());
        }
        let Some(last) = call.args.last_mut() else { return Ok(()) };
        let Expr::Literal(LiteralValue::String(text)) = &last.expr else { return Ok(()) };
        let pattern = Regex::new(text.inner()).map_err(|_| {
            let problem = messages::no_regex(text.inner());
            self.at("matches", &format!("matches {:?}, which is not a regular expression: {problem}", text.inner()))
        })?;
        last.expr = Expr::Ident(pattern_name(self.wants.patterns.len()));
        self.wants.patterns.push(pattern);
        call.func_name = MATCHES.to_owned();
        call.args.splice(0..0, call.target.take().map(|target| *target));
        Ok(())
    }

    fn comprehension(&mut self, inner: &mut ComprehensionExpr) -> Result<(), String> {
        self.expression(&mut inner.iter_range, false)?;
        let range = std::mem::take(&mut inner.iter_range);
        let id = range.id;
        let items = CallExpr { func_name: ITEMS.to_owned(), target: None, args: vec![range] };
        inner.iter_range = IdedExpr { id, expr: Expr::Call(items) };
        let outside = self.bound.len();
        self.bound.extend([inner.iter_var.clone(), inner.accu_var.clone()]);
        self.bound.extend(inner.iter_var2.clone());
        for part in [&mut inner.accu_init, &mut inner.loop_cond, &mut inner.loop_step, &mut inner.result] {
            self.expression(part, true)?;
        }
        self.bound.truncate(outside);
        Ok(())
    }
}

fn indexed_literal(call: &CallExpr) -> Option<&str> {
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("_[_]" | "_?._", [_, IdedExpr { expr: Expr::Literal(LiteralValue::String(name)), .. }]) => Some(name.inner()),
        _ => None,
    }
}
