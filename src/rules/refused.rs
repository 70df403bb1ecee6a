//! refused: call after call was refused, and the agent insists.
//!
//! Fires when the last 3 (warning) or 10 (break) new call_ids in a row were refused: WAIT, REUSE, DENY or STOP. The
//! break is a STOP of the run. Calls that wait for a person do not count: nobody refused them.
//!
//! Why: a refusal that is not understood is repeated with small changes; each one costs a model turn.
//!
//! Known problems: a client that answers every WAIT with a new call_id instead of asking for the same one again is
//! taken for one that insists.

use crate::domain::{
    call::Call,
    finding::{Decision, Finding, Level},
    reason::Reason,
};

use super::{Closes, Context, Rule, levels::Levels};

/// The rule.
pub const RULE: Rule = Rule::detector("refused", LEVELS, check, Levels::silent).closes(Closes::RunWhileRefused);
const LEVELS: Levels = Levels { warning: Some(3), critical: None, break_at: Some(10) };

fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    if !cx.is_new {
        return None;
    }
    let refused = |call: &&Call| call.was_refused() && call.approval.is_none();
    let streak: Vec<_> = cx.calls().take_while(refused).collect();
    let count = streak.len() as u32;
    let finding = levels.finding(&RULE, Reason::InsistingOnRefused, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "The last {count} tool calls were refused. Read why before you call again: repeating them with small \
             changes will not help."
        ),
        _ => format!(
            "Tools are disabled for this run: {count} calls in a row were refused. Give the final answer with what you \
             have, and say what could not be done."
        ),
    })?;
    let stops = finding.level == Some(Level::Break);
    Some(Finding { decision: if stops { Decision::Stop } else { finding.decision }, ..finding })
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn the_eleventh_call_after_ten_refusals_stops_the_run() {
        check(
            "rules same_call refused
             pay {} -> error auth
             pay {} => deny not_retryable   x2
             pay {} => deny not_retryable
             look {} => allow, warning refused 3
             pay {} => deny not_retryable   x10
             look {\"n\":2} => stop insisting_on_refused, break refused 10
             look {\"n\":3} => stop insisting_on_refused, break refused 11
             run next
             look {\"n\":4} => allow",
        );
    }
}
