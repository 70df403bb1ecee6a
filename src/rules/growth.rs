//! growth: the runaway brake, on rates and not on repetition.
//!
//! Fires when a call tree asks faster than `calls_per_second`, or burns more than `tokens_per_minute`: first WAIT,
//! until the rate has fallen; then STOP of the run, when it was told to wait `patience` times within ten seconds, or
//! burns
//! `tokens_per_minute_stop`. The calls of one batch count once.
//!
//! Why: a session that makes 436 requests at zero-second intervals, or burns 436 million tokens in a minute, has to be
//! stopped within its first seconds; no loop detector needs to understand what it is doing.
//!
//! Known problems: many sub-agents share their tree's rate; a large fleet under one root needs a higher limit.

use crate::domain::{
    finding::{Decision, Finding, Level},
    reason::Reason,
    time::{Timestamp, wait_in_words},
    tree::{PACE_MAX, PACE_TOKENS_MS},
};

use super::Context;

/// The rule's name.
pub const ID: &str = "growth";
/// The highest number of calls a second that can be limited: what a tree remembers.
pub const CALLS_PER_SECOND_MAX: u32 = PACE_MAX as u32;

const SECOND_MS: u64 = 1_000;
const PATIENCE_WINDOW_MS: u64 = 10_000;

/// The rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// Judgements a second from which the tree must wait, at most [`CALLS_PER_SECOND_MAX`].
    pub calls_per_second: Option<u32>,
    /// How many waits within ten seconds may be told before the run is stopped.
    pub patience: u32,
    /// Tokens within 60 seconds from which the tree must wait.
    pub tokens_per_minute: Option<u64>,
    /// Tokens within 60 seconds at which the run is stopped.
    pub tokens_per_minute_stop: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            calls_per_second: Some(20),
            patience: 20,
            tokens_per_minute: Some(5_000_000),
            tokens_per_minute_stop: Some(20_000_000),
        }
    }
}

/// See the module.
#[must_use]
pub fn check(params: &Params, cx: &Context<'_>) -> Option<Finding> {
    if let Some(closed) = cx.closed(ID, None) {
        return Some(stop(closed.count));
    }
    let findings = calls(params, cx).into_iter().chain(tokens(params, cx));
    findings.max_by_key(|finding| (finding.decision, finding.retry_after_ms))
}

fn calls(params: &Params, cx: &Context<'_>) -> Option<Finding> {
    let limit = params.calls_per_second?.min(CALLS_PER_SECOND_MAX) as usize;
    let recent: Vec<Timestamp> = cx
        .tree
        .pace
        .judged
        .iter()
        .filter(|(batch, at)| Some(*batch) != cx.batch && cx.now.since_ms(*at) < SECOND_MS)
        .map(|(_, at)| *at)
        .collect();
    let over = recent.len().checked_sub(limit)?;
    let count = recent.len() as u32;
    let slowed = cx.tree.pace.slowed.iter().filter(|at| cx.now.since_ms(**at) < PATIENCE_WINDOW_MS).count() as u32;
    if slowed >= params.patience {
        return Some(stop(slowed));
    }
    let wait_ms = recent[over].plus_ms(SECOND_MS).since_ms(cx.now);
    let message = format!(
        "Tool calls come too fast: {count} within a second. Wait {} before the next one, and ask yourself whether you \
         need it.",
        wait_in_words(wait_ms)
    );
    let finding = Finding::new(ID, Decision::Wait, Reason::Runaway, message).retry_after(wait_ms);
    Some(finding.at_level(Level::Critical, count))
}

fn tokens(params: &Params, cx: &Context<'_>) -> Option<Finding> {
    let known = cx.tree.pace.tokens.iter().filter(|(at, _)| cx.now.since_ms(*at) < PACE_TOKENS_MS).copied();
    // What is reported with this call is booked to its second, and leaves the minute with it.
    let recent: Vec<(Timestamp, u64)> = known.chain([(cx.now.second(), cx.usage().tokens())]).collect();
    let mut sum = recent.iter().fold(0_u64, |sum, (_, tokens)| sum.saturating_add(*tokens));
    let count = u32::try_from(sum).unwrap_or(u32::MAX);
    if params.tokens_per_minute_stop.is_some_and(|limit| sum >= limit) {
        return Some(stop_tokens(count));
    }
    let limit = params.tokens_per_minute.filter(|limit| sum >= *limit)?;
    // Wait for as many of the oldest seconds to pass out of the minute as it takes.
    let mut wait_ms = PACE_TOKENS_MS;
    for (at, tokens) in &recent {
        sum = sum.saturating_sub(*tokens);
        if sum < limit {
            wait_ms = at.plus_ms(PACE_TOKENS_MS).since_ms(cx.now);
            break;
        }
    }
    let message = format!(
        "{count} tokens were used within a minute, more than the {limit} allowed. Wait {} before the next tool call, \
         and work with less context.",
        wait_in_words(wait_ms)
    );
    let finding = Finding::new(ID, Decision::Wait, Reason::Runaway, message).retry_after(wait_ms);
    Some(finding.at_level(Level::Critical, count))
}

fn stop(count: u32) -> Finding {
    let message = format!(
        "Tools are disabled for this run: it was told {count} times within seconds to slow down, and did not. Give the \
         final answer with what you have."
    );
    Finding::new(ID, Decision::Stop, Reason::Runaway, message).at_level(Level::Break, count)
}

fn stop_tokens(count: u32) -> Finding {
    let message = format!(
        "Tools are disabled for this run: {count} tokens were used within a minute. Give the final answer with what \
        you \
         have."
    );
    Finding::new(ID, Decision::Stop, Reason::Runaway, message).at_level(Level::Break, count)
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn a_burst_waits_and_is_let_through_at_the_time_told() {
        check(
            "rules growth
             step 0s
             call {\"n\":new} => allow   x20
             call {\"n\":new} => wait runaway after 1s
             wait 999ms
             call {\"n\":new} => wait runaway after 1ms
             wait 1ms
             call {\"n\":new} => allow",
        );
    }

    #[test]
    fn who_does_not_slow_down_is_stopped_until_the_next_run() {
        check(
            "rules growth
             step 0s
             call {\"n\":new} => allow   x20
             call {\"n\":new} => wait runaway   x20
             call {\"n\":new} => stop runaway, break growth 20
             wait 1h
             call {\"n\":new} => stop runaway
             run next
             call {\"n\":new} => allow",
        );
    }

    #[test]
    fn burnt_tokens_wait_out_their_minute_or_stop_the_run() {
        check(
            "rules growth
             call {\"n\":1} tokens 3000000 => allow
             wait 9s
             call {\"n\":2} tokens 3000000 => wait runaway after 50s
             wait 50s
             call {\"n\":3} => allow
             call {\"n\":4} tokens 436000000 => stop runaway",
        );
    }
}
