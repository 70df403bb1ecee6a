//! Repetition after a failure: worthwhile, too early, or exhausted.

use super::{RULE, has_world_changed, hint_to_check, refused_while_open};
use crate::{
    domain::{
        failure::FailureKind,
        finding::{Decision, Finding, Wording},
        previous::{Previous, PreviousAdvice},
        reason::Reason,
        time::wait_in_words,
    },
    retry::next_step::next_step,
    rules::{RuleContext, evidence::errors_move},
};

pub(super) fn failure_finding(cx: &RuleContext<'_>, previous: &Previous, retry: PreviousAdvice) -> Option<Finding> {
    // A failed line may succeed after an unreported change of the world; loop rules cover it.
    if cx.proposal.effect.in_steps {
        return None;
    }
    if previous.is_stale(cx.session_id(), cx.attempts_run(), cx.now) || has_world_changed(cx, previous) {
        return None;
    }
    let (tool, error, next) = (cx.tool(), describe_failure(cx, previous), next_step_after(previous));
    if let Some(refused) = refused_while_open(cx, previous) {
        return Some(refused);
    }
    // A different error is no repetition of the last one.
    if errors_move(cx) && !cx.proposal.effect.is_unsafe_to_repeat(true) {
        return None;
    }
    if retry.exhausted {
        let situation = format!(
            "{tool} was not run: with these arguments it failed {} times, as often as it may be tried, the last \
             time{error}.",
            previous.attempt
        );
        let message = Wording::new(situation, next);
        return Some(Finding::new(RULE.id, Decision::Deny, Reason::RetriesExhausted, message));
    }
    if !retry.retryable {
        let situation = format!(
            "{tool} was not run: with these arguments it failed{error}, and the same call again is not worth it."
        );
        let message = Wording::new(situation, next);
        return Some(Finding::new(RULE.id, Decision::Deny, Reason::NotRetryable, message));
    }
    let waits = cx.who_waits();
    let wait_ms = retry.not_before.since_ms(cx.now);
    // Without content, a call is usually a read.
    if wait_ms == 0 && previous.open_attempts > 0 && cx.has_content() {
        return Some(hint_to_check(cx));
    }
    (wait_ms > 0).then(|| {
        let situation = format!(
            "{tool} with these arguments failed{error}. A retry is worth it in {}, not before.",
            wait_in_words(wait_ms)
        );
        let message = Wording::new(situation, waits);
        Finding::new(RULE.id, Decision::Wait, Reason::RetryTooEarly, message).retry_after(wait_ms)
    })
}

/// ` 3 min ago: "no such order" (not_found)`.
fn describe_failure(cx: &RuleContext<'_>, previous: &Previous) -> String {
    let ago = wait_in_words(cx.now.since_ms(previous.last_at));
    match &previous.failure {
        Some((kind, Some(line))) if !line.is_empty() => format!(" {ago} ago: \"{line}\" ({})", kind.as_str()),
        Some((kind, _)) => format!(" {ago} ago ({})", kind.as_str()),
        None => format!(" {ago} ago"),
    }
}

fn next_step_after(previous: &Previous) -> &'static str {
    let (kind, line) =
        previous.failure.as_ref().map_or((FailureKind::Other, None), |(kind, line)| (*kind, line.as_deref()));
    next_step(kind, line.unwrap_or_default())
}
