//! Session summary within a token limit, for a model without context: work done, knowledge, open work, and calls not to
//! repeat (docs/semantics.md#session-state).
//!
//! Parts are ordered by the cost of a mistake: stops, plan, open calls, changes made or possible, reads, failures,
//! refusals. Lines that do not fit are omitted, beginning with the oldest read; a line counts the omitted calls of each
//! tool.

mod history;
mod lines;
mod token_limit;

pub(super) use self::history::{ARGUMENTS_MAX, SessionHistory, came_of};
#[cfg(test)]
pub(crate) use self::token_limit::tokens;
use self::token_limit::{SummaryLine, SummarySection, fit};
use super::state::Stops;
use crate::domain::{
    budget::RemainingBudget,
    history::PastCall,
    redaction::Redaction,
    session_state::{SUMMARY_TOKENS_MAX, SUMMARY_TOKENS_MIN},
    time::Timestamp,
    tree::Session,
};

/// Input of a summary.
pub(super) struct SummaryInput<'a> {
    pub(super) session: &'a Session,
    /// Its past calls, oldest first.
    pub(super) past: &'a [PastCall],
    pub(super) stops: &'a Stops,
    pub(super) left: &'a [RemainingBudget],
    /// Redaction rules.
    pub(super) redaction: &'a Redaction,
    pub(super) now: Timestamp,
}

/// Heading of undeclared calls with results of writes.
const ACTS: &str = "Done, as far as the answers tell. Check before you do these again with the same arguments:";

/// The summary, in about this many tokens.
pub(super) fn summary(told: &SummaryInput<'_>, tokens: usize) -> String {
    let past = SessionHistory::of(told.past, told.redaction, told.now);
    let mut parts = vec![SummarySection::fixed_section(
        "",
        told.stops.render_lines(&past).into_iter().map(SummaryLine::fixed_line).collect(),
    )];
    parts.push(SummarySection::fixed_section("", lines::plan(told.session)));
    parts.push(SummarySection::fixed_section("Open:", lines::open(told.session, &past, told.now)));
    parts.push(SummarySection::fixed_section("Done twice:", lines::list_double_effects(&past)));
    parts.push(SummarySection::of("Done. Do not do these again with the same arguments:", lines::list_writes(&past)));
    parts.push(SummarySection::of(ACTS, lines::acts(&past)));
    parts.push(SummarySection::by_tool(
        "Called, with what came of it. Use these answers:",
        lines::list_successes(&past),
    ));
    parts.push(SummarySection::of("Failed:", lines::list_failures(&past, told.now)));
    parts.push(SummarySection::fixed_section("Refused, not run:", lines::list_refusals(told.session, &past, told.now)));
    parts.push(SummarySection::fixed_section("", lines::budget(told.left, told.stops)));
    if past.is_empty() && told.session.calls.is_empty() {
        parts.insert(
            0,
            SummarySection::fixed_section(
                "",
                vec![SummaryLine::fixed_line("No tool calls were made in this session.".to_owned())],
            ),
        );
    }
    fit(parts, tokens.clamp(SUMMARY_TOKENS_MIN, SUMMARY_TOKENS_MAX))
}

#[cfg(test)]
#[path = "summary/tests.rs"]
mod tests;
