//! Messages about conditions that their owner can act on.

use cel::ExecutionError;

use super::functions::ITEMS;

/// Maximum length of a library's message that is passed on, in characters.
const PROBLEM_MAX: usize = 160;
/// Maximum edit distance of a suggested name.
const EDITS_MAX: usize = 3;

/// The most similar known name, with at most a third of its letters different.
#[must_use]
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = name.to_lowercase();
    let edits = |option: &str| strsim::damerau_levenshtein(&option.to_lowercase(), &word);
    // One that is longer or shorter by more letters than may differ needs no table of all their pairs.
    let length = word.chars().count();
    let is_as_long = |option: &&&str| option.chars().count().abs_diff(length) <= EDITS_MAX;
    let best = known.iter().filter(is_as_long).map(|option| (edits(option), *option)).min()?;
    let allowed = (length.max(best.1.chars().count()) / 3).clamp(1, EDITS_MAX);
    (best.0 <= allowed).then_some(best.1)
}

/// `did you mean args?`
pub(super) fn suggest_name(name: &str, known: &[&str]) -> Option<String> {
    nearest(name, known).map(|meant| format!("did you mean {meant}?"))
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Syntax error of a condition, with its position, in place of the library's message, which is for programmers.
pub(super) fn unreadable(text: &str, place: Option<(isize, isize)>) -> String {
    let has_word = |word: &str| {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|found| found.eq_ignore_ascii_case(word))
    };
    let compares = ["==", "!=", "<=", ">="].into_iter().fold(text.to_owned(), |text, known| text.replace(known, " "));
    let count = |c: char| text.matches(c).count();
    let hint = match () {
        () if count('\'') % 2 == 1 || count('"') % 2 == 1 => "a quote is not closed".to_owned(),
        () if count('(') != count(')') => "the ( and ) do not match".to_owned(),
        () if compares.contains('=') => "write == to compare".to_owned(),
        () if ["and", "or", "not"].into_iter().any(has_word) => "write && for and, || for or, ! for not".to_owned(),
        () => match place {
            Some((line, column)) => {
                let line = text.lines().nth(usize::try_from(line - 1).unwrap_or(0)).unwrap_or_default();
                let rest: String = line.chars().skip(usize::try_from(column - 1).unwrap_or(0)).take(20).collect();
                if rest.trim().is_empty() {
                    "it ends too early".to_owned()
                } else {
                    format!("look at {:?}", rest.trim())
                }
            }
            None => "look at its operators".to_owned(),
        },
    };
    let at = place.map(|(line, column)| {
        let line = if text.contains('\n') { format!("line {} ", line.max(1)) } else { String::new() };
        format!(" ({line}column {})", column.max(1))
    });
    format!("is not a condition (CEL): {hint}{}", at.unwrap_or_default())
}

/// The problem of an invalid regular expression.
#[must_use]
pub fn no_regex(text: &str) -> &'static str {
    let count = |c: char| text.matches(c).count() - text.matches(&format!("\\{c}")).count();
    match () {
        () if count('(') != count(')') => "its ( and ) do not match",
        () if count('[') > count(']') => "a [ is not closed",
        () if text.contains("(?=") || text.contains("(?!") || text.contains("(?<") => "it cannot look ahead or behind",
        () if text.starts_with(['*', '+', '?']) => "nothing stands before its first * + or ?; any text is .*",
        () => "look at its \\ and its { }",
    }
}

/// Message of an evaluation error.
pub(super) fn problem(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(name) => format!("{name} is missing; ask has(…) first where it may be"),
        ExecutionError::NoSuchOverload(overload) => {
            let types = overload.argument_types();
            match overload.function() {
                ITEMS => format!("a macro wants a list or an object, not a {}", types.join(", ")),
                "@in" => format!("in wants a list or an object on its right, not {}", types.join(" in ")),
                name => format!("{} does not fit {}", operator(name), types.join(" and ")),
            }
        }
        ExecutionError::ValuesNotComparable(a, b) => {
            format!("{} and {} cannot be compared", a.type_of(), b.type_of())
        }
        ExecutionError::UnsupportedBinaryOperator(name, a, b) => {
            let name = match *name {
                "add" => "+",
                "sub" => "-",
                "mul" => "*",
                "div" => "/",
                "rem" => "%",
                other => other,
            };
            format!("{name} does not fit {} and {}; int(…), double(…) and string(…) convert", a.type_of(), b.type_of())
        }
        ExecutionError::UnexpectedType { got, want } => format!("a {got} is given where a {want} is needed"),
        ExecutionError::FunctionError { function, message } if function == ITEMS => message.clone(),
        ExecutionError::FunctionError { function, message } if function == "date" => {
            format!("date(): {}", truncate_text(message))
        }
        ExecutionError::FunctionError { function, .. } => format!("{function}() cannot read its value"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "it divides by zero".to_owned(),
        ExecutionError::Overflow(..) => "a number becomes too large".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "a list is shorter than the index".to_owned(),
        _ => "it cannot be computed".to_owned(),
    }
}

/// An operator in its written form.
fn operator(name: &str) -> &str {
    match name {
        "_[_]" => "[…]",
        name => name.trim_matches('_'),
    }
}

fn truncate_text(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(PROBLEM_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
