//! same_error: nearly the same arguments, and the same error again.
//!
//! Fires when earlier variants of the call in this run, with arguments at least .8 alike, ended in the same error: two
//! are a warning, three are refused, ten break the run. A variant counts once, however often it was repeated (the very
//! same call is the business of `same_call`). A success of such a call in between starts the count again, and a failure
//! whose advice was to retry is no evidence.
//!
//! Why: on 34,192 recorded calls, what three such errors refuse was futile in 98.7 % of cases, and cost none of 111
//! novel results in successful sessions (docs/learning.md#near-duplicate-calls). Counting variants instead of calls is
//! the more careful of the two: on the airline traces three repetitions of one call would have refused the variant that
//! then succeeded.
//!
//! Known problems: the flag measures waste; it does not say that the task will fail.

use crate::domain::{
    call::Call,
    finding::{Finding, Level},
    outcome::OutcomeStatus,
    reason::Reason,
};

use super::{
    Closes, Context, Rule,
    levels::{Levels, still_broken},
};

/// The rule.
pub const RULE: Rule =
    Rule::detector("same_error", Levels::new(2, 3, 10), check, Levels::silent).closes(Closes::Tool).per_tool();

fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    if let Some(broken) = still_broken(&RULE, Reason::SameError, cx) {
        return Some(broken);
    }
    let mut error = None;
    let mut streak: Vec<&Call> = Vec::new();
    for call in cx.calls().filter(|call| call.tool.as_str() == cx.tool()) {
        let Some(outcome) = &call.outcome else { continue };
        match outcome.status {
            OutcomeStatus::Success if cx.is_like(call) => break,
            OutcomeStatus::Error if outcome.advice.is_none_or(|advice| !advice.retryable) => {
                let same = error.is_none_or(|digest| outcome.digest == digest);
                if same && cx.is_like(call) {
                    error = Some(outcome.digest);
                    let is_known = |other: &&Call| other.fingerprint == call.fingerprint;
                    if call.fingerprint != cx.fingerprint() && !streak.iter().any(is_known) {
                        streak.push(call);
                    }
                }
            }
            _ => {}
        }
    }
    let (count, tool) = (streak.len() as u32, cx.tool());
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

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    const QUERY: &str = "run {\"query\":\"select name from customers where city = 'Hamburg' order by name";

    #[test]
    fn small_changes_that_fail_alike_are_refused_at_the_fourth() {
        check(&format!(
            "rules same_error
             {QUERY} limit 1\"}} -> error invalid_argument
             {QUERY} limit 2\"}} -> error invalid_argument
             {QUERY} limit 3\"}} -> error invalid_argument => allow, warning same_error 2
             {QUERY} limit 4\"}} => deny same_error, critical same_error 3"
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
