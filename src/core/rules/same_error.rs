//! same_error: nearly the same arguments, and the same error again.
//!
//! Fires when earlier variants of the call in this run ended in the same error: three are a warning, five are refused,
//! ten close the tool. A variant is a near duplicate (a shell line: the same programs with the same operands). With two
//! leaves or more it is also a call with one differing leaf that is no path, query or command, unless the error is
//! `not_found`. A variant counts once, however often it was repeated (exact repetitions belong to `same_call`). The
//! count restarts when such a call succeeds, when the world changes, and when a position or a count in the error moves;
//! a failure with retry advice is no evidence. A result that reports an unmistakable failure counts as one: `isError`,
//! `status: failed`, an exit code over 1, or the tool's `result_map`. Variants that differ in an identity alone are
//! warned of once (each 25th `not_found` in a row) and never refused. A call passes that differs from the newest
//! variant in a field named by the error. A shell line never closes the shell.
//!
//! Why: on 34,192 recorded calls, what three such errors refuse was futile in 98.7 % of cases, and cost none of 111
//! novel results in successful sessions (docs/learning.md#near-duplicate-calls). Counting variants instead of calls is
//! more careful: on the airline traces three repetitions of one call would have refused the variant that then
//! succeeded.
//!
//! Known problems: the flag measures waste; it does not predict that the task will fail.

use crate::domain::{
    call::Call,
    failure::FailureKind,
    finding::{Finding, Level, Wording},
    outcome::{Outcome, OutcomeStatus},
    reason::Reason,
};

use super::{
    BreakScope, Rule, RuleContext,
    evidence::may_have_changed,
    levels::{DetectorLevels, still_broken},
};

/// The rule.
pub const RULE: Rule = Rule::detector("same_error", DetectorLevels::new(3, 5, 10), check, DetectorLevels::silent)
    .closes(BreakScope::Tool)
    .per_tool();

/// Warning interval: consecutive `not_found` errors of different things are answers.
const NOT_FOUND_EACH: u32 = 25;
/// Maximum digits of a position or a count.
const NUMBER_DIGITS_MAX: usize = 7;
/// Search fields, where each value is another question.
const SEARCHES: [&str; 9] = ["path", "file", "query", "command", "cmd", "sql", "url", "pattern", "search"];

fn check(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    let mut error: Option<&Outcome> = None;
    let mut streak: Vec<&Call> = Vec::new();
    for call in cx.calls() {
        let is_mine = call.tool.as_str() == cx.tool();
        let Some(outcome) = &call.outcome else { continue };
        if !is_failure(outcome) {
            let mends = is_mine && is_variant(cx, call, None);
            if call.success().is_some() && (mends || may_have_changed(cx, call)) {
                break;
            }
            continue;
        }
        let same = error.is_none_or(|newest| outcome.digest == newest.digest);
        if is_mine && same && is_variant(cx, call, outcome.failure) {
            if error.is_some_and(|newest| has_moved(newest, outcome, call)) {
                break;
            }
            error = Some(outcome);
            if !cx.is_same(call) && !streak.iter().any(|other| other.fingerprint == call.fingerprint) {
                streak.push(call);
            }
        }
    }
    if streak.first().is_some_and(|newest| has_changed_named_field(cx, newest)) {
        return None;
    }
    if let Some(broken) = still_broken(&RULE, Reason::SameError, cx) {
        return Some(broken);
    }
    let (count, tool) = (streak.len() as u32, cx.tool());
    levels.reached_level(count)?;
    let is_sweep = cx.sweeps(&streak);
    let not_found = error.is_some_and(|outcome| outcome.failure == Some(FailureKind::NotFound));
    let levels = match (is_sweep, cx.proposal.effect.in_steps) {
        (true, _) if not_found => DetectorLevels { warning: Some(NOT_FOUND_EACH), critical: None, break_at: None },
        (true, _) if levels.was_warned_at(count) => return None,
        (true, _) => DetectorLevels { critical: None, break_at: None, ..*levels },
        (false, true) => DetectorLevels { break_at: None, ..*levels },
        (false, false) => *levels,
    };
    levels.finding(&RULE, Reason::SameError, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "{tool} failed {count} times in the same way with nearly these arguments{}. Change what the error names, \
             or ask the user.",
            line_of(error)
        )
        .into(),
        _ => Wording::new(
            format!(
                "{tool} was not run: {count} calls with nearly these arguments failed in the same way{}.",
                line_of(error)
            ),
            "Change what the error names, or ask the user.",
        ),
    })
}

/// `: "start: must be RFC 3339"`.
fn line_of(error: Option<&Outcome>) -> String {
    let line = error.and_then(|outcome| outcome.error_line.as_deref()).filter(|line| !line.is_empty());
    line.map(|line| format!(": \"{line}\"")).unwrap_or_default()
}

/// True when a position or count in the error changed that the arguments do not hold: the agent makes progress.
fn has_moved(newest: &Outcome, older: &Outcome, older_call: &Call) -> bool {
    let numbers = |line: Option<&str>| -> Vec<String> {
        let words = line.unwrap_or_default().split(|c: char| !c.is_ascii_alphanumeric());
        words
            .filter(|word| {
                !word.is_empty() && word.len() <= NUMBER_DIGITS_MAX && word.bytes().all(|b| b.is_ascii_digit())
            })
            .map(str::to_owned)
            .collect()
    };
    let (mine, theirs) = (numbers(newest.error_line.as_deref()), numbers(older.error_line.as_deref()));
    let is_argument = |number: &str| older_call.arguments.as_deref().is_none_or(|arguments| arguments.contains(number));
    mine.len() == theirs.len() && mine.iter().zip(&theirs).any(|(mine, theirs)| mine != theirs && !is_argument(theirs))
}

/// True when the call differs from a failed one in a field that the error names.
fn has_changed_named_field(cx: &RuleContext<'_>, failed: &Call) -> bool {
    let line = failed.outcome.as_ref().and_then(|outcome| outcome.error_line.as_deref());
    let (Some(line), Some(shape)) = (line, failed.shape.as_deref()) else { return false };
    let line = line.to_ascii_lowercase();
    let words: Vec<&str> = line.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let is_named = |name: &str| name.contains(char::is_alphabetic) && words.contains(&&*name.to_ascii_lowercase());
    cx.proposal.shape.differing(shape).any(|leaf| leaf.split('.').any(is_named))
}

/// A failure without a retry, or a result that reports one.
fn is_failure(outcome: &Outcome) -> bool {
    match outcome.status {
        OutcomeStatus::Error => outcome.advice.as_ref().is_none_or(|advice| !advice.retryable),
        OutcomeStatus::Success => outcome.marks.as_deref().is_some_and(|marks| marks.failed),
        _ => false,
    }
}

/// A near duplicate; or one of several fields differs, outside search fields.
fn is_variant(cx: &RuleContext<'_>, call: &Call, failure: Option<FailureKind>) -> bool {
    let differs = || {
        let shape = call.shape.as_deref()?;
        let field = cx.proposal.shape.only_difference(shape)?;
        let name = field.to_ascii_lowercase();
        let searches = SEARCHES.iter().any(|word| name.contains(word));
        Some(!searches && !cx.proposal.shape.is_place(field) && !shape.is_place(field))
    };
    cx.is_like(call) || (failure != Some(FailureKind::NotFound) && differs() == Some(true))
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    const QUERY: &str = "run {\"query\":\"select name from customers where city = 'Hamburg' order by name";

    #[test]
    fn small_changes_that_fail_alike_are_refused_at_the_sixth() {
        check(&format!(
            "rules same_error
             {QUERY} limit 1\"}} -> error invalid_argument
             {QUERY} limit 2\"}} -> error invalid_argument
             {QUERY} limit 3\"}} -> error invalid_argument => allow
             {QUERY} limit 4\"}} -> error invalid_argument => allow, warning same_error 3
             {QUERY} limit 5\"}} -> error invalid_argument
             {QUERY} limit 6\"}} => deny same_error, critical same_error 5"
        ));
    }

    #[test]
    fn a_failure_inside_a_result_is_one() {
        for failure in ["{\"isError\":true,\"text\":\"no_such_table\"}", "\"no such table, exit code 2\""] {
            check(&format!(
                "rules same_error
                 {QUERY} limit 1\"}} -> ok {failure}
                 {QUERY} limit 2\"}} -> ok {failure}
                 {QUERY} limit 3\"}} -> ok {failure}
                 {QUERY} limit 4\"}} => allow, warning same_error 3"
            ));
        }
    }

    #[test]
    fn one_field_that_is_guessed_counts_and_places_and_searches_do_not() {
        let tried = |field: &str, values: [&str; 4], error: &str, said: &str| {
            let [a, b, c, d] = values.map(|value| format!("set {{\"unit\":\"EUR\",\"{field}\":\"{value}\"}}"));
            check(&format!(
                "rules same_error\n{a} -> error {error}\n{b} -> error {error}\n{c} -> error {error}\n{d} => {said}"
            ));
        };
        let codes = ["zxcv", "qwer", "hjkl", "bnmp"];
        tried("code", codes, "invalid_argument", "allow, warning same_error 3");
        tried("code", codes, "not_found", "allow");
        tried("query", codes, "invalid_argument", "allow");
        tried("target", ["/a/zxcv", "/b/qwer", "/c/hjkl", "/d/bnmp"], "invalid_argument", "allow");
    }

    #[test]
    fn count_starts_again_when_the_world_changes() {
        check(&format!(
            "rules same_error
             {QUERY} limit 1\"}} -> error invalid_argument
             {QUERY} limit 2\"}} -> error invalid_argument
             {QUERY} limit 3\"}} -> error invalid_argument
             migrate {{}} -> ok new
             {QUERY} limit 4\"}} => allow"
        ));
    }

    #[test]
    fn other_arguments_another_error_or_a_success_are_not_it() {
        check(&format!(
            "rules same_error
             {QUERY} limit 1\"}} -> error invalid_argument   x4
             run {{\"query\":\"show tables\"}} -> error invalid_argument => allow
             {QUERY} limit 2\"}} -> ok rows
             {QUERY} limit 3\"}} -> error invalid_argument
             {QUERY} limit 4\"}} => allow"
        ));
    }
}
