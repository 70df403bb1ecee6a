//! same_error: nearly the same arguments, and the same error again.
//!
//! Fires when earlier variants of the call in this run ended in the same error: three are a warning, five are refused,
//! ten close the tool. A variant has arguments at least .8 alike; or two fields or more of which one alone differs, is
//! no path, query or command, and the error is no `not_found`. A variant counts once, however often it was repeated
//! (the very same call is the business of `same_call`). The count starts again when such a call succeeds and when the
//! world changes; a failure whose advice was to retry is no evidence. A result that reports an unmistakable failure is
//! one: `isError`, `status: failed`, an exit code over 1, or what the tool's `result_map` says.
//!
//! Why: on 34,192 recorded calls, what three such errors refuse was futile in 98.7 % of cases, and cost none of 111
//! novel results in successful sessions (docs/learning.md#near-duplicate-calls). Counting variants instead of calls is
//! the more careful of the two: on the airline traces three repetitions of one call would have refused the variant that
//! then succeeded.
//!
//! Known problems: the flag measures waste; it does not say that the task will fail.

use crate::domain::{
    call::Call,
    failure::FailureKind,
    finding::{Finding, Level},
    outcome::{Outcome, OutcomeStatus},
    reason::Reason,
};

use super::{
    Closes, Context, Rule,
    evidence::may_have_changed,
    levels::{Levels, still_broken},
};

/// The rule.
pub const RULE: Rule =
    Rule::detector("same_error", Levels::new(3, 5, 10), check, Levels::silent).closes(Closes::Tool).per_tool();

/// Fields in which one looks for something: each value is another question.
const SEARCHES: [&str; 9] = ["path", "file", "query", "command", "cmd", "sql", "url", "pattern", "search"];

fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    if let Some(broken) = still_broken(&RULE, Reason::SameError, cx) {
        return Some(broken);
    }
    let mut error = None;
    let (mut streak, mut refused): (Vec<&Call>, u32) = (Vec::new(), 0);
    for call in cx.calls() {
        let is_mine = call.tool.as_str() == cx.tool();
        refused += u32::from(is_mine && call.was_refused_by(RULE.id));
        let Some(outcome) = &call.outcome else { continue };
        if !failed(outcome) {
            let mends = is_mine && is_variant(cx, call, None);
            if call.success().is_some() && (mends || may_have_changed(cx, call)) {
                break;
            }
            continue;
        }
        let same = error.is_none_or(|digest| outcome.digest == digest);
        if is_mine && same && is_variant(cx, call, outcome.failure) {
            error = Some(outcome.digest);
            if !cx.is_same(call) && !streak.iter().any(|other| other.fingerprint == call.fingerprint) {
                streak.push(call);
            }
        }
    }
    let (count, tool) = (streak.len() as u32, cx.tool());
    let count = if levels.reached(count) >= Some(Level::Critical) { count + refused } else { count };
    levels.finding(&RULE, Reason::SameError, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "{tool} failed {count} times in the same way with nearly these arguments. If it fails like that again, \
             change the approach: read the error, use another tool, or ask the user."
        ),
        _ => format!(
            "{tool} was not run: {count} calls with nearly these arguments failed in the same way. Small changes do \
             not mend it: change what the error names, use another tool, or ask the user."
        ),
    })
}

/// A failure that a retry does not mend, or a result that reports one.
fn failed(outcome: &Outcome) -> bool {
    match outcome.status {
        OutcomeStatus::Error => outcome.advice.as_ref().is_none_or(|advice| !advice.retryable),
        OutcomeStatus::Success => outcome.marks.as_deref().is_some_and(|marks| marks.failed),
        _ => false,
    }
}

/// Nearly the same arguments; or one of several fields differs, and guessing it is no way of searching.
fn is_variant(cx: &Context<'_>, call: &Call, failure: Option<FailureKind>) -> bool {
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
    fn it_starts_again_when_the_world_changes() {
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
