//! Past calls folded by fingerprint, with the outcomes of their executions.

use std::collections::BTreeMap;

use crate::domain::{
    fingerprint::Fingerprint,
    gist::{self, size},
    history::{PastCall, PastOutcome},
    redaction::Redaction,
    session_state::CallState,
    time::Timestamp,
};

/// Maximum length of one call's arguments, in characters.
pub(crate) const ARGUMENTS_MAX: usize = 120;
/// Maximum length of an error line, in characters.
const ERROR_MAX: usize = 160;
/// Maximum length of an outcome's gist, in characters.
const GIST_MAX: usize = 140;
/// Maximum number of names from a repeated call.
const NAMES_MAX: usize = 6;

/// All executions of one call.
pub(super) struct CallHistory<'a> {
    /// The newest permitted judgment.
    pub(super) newest: &'a PastCall,
    /// Its state.
    pub(super) state: CallState,
    /// The newest success.
    pub(super) success: Option<&'a PastCall>,
    pub(super) successes: u32,
    /// Failures since the last success.
    pub(super) failures: u32,
    /// True for a double effect.
    pub(super) is_double: bool,
    /// Names from its successes, oldest first.
    pub(super) made: Vec<&'a str>,
}

/// Known calls of a session.
pub(crate) struct SessionHistory<'a> {
    entries: Vec<CallHistory<'a>>,
    refused: Vec<&'a PastCall>,
    calls: &'a [PastCall],
    redaction: &'a Redaction,
}

impl<'a> SessionHistory<'a> {
    /// Folds calls, oldest first; the entries are in the order of their newest execution.
    pub(super) fn of(calls: &'a [PastCall], redaction: &'a Redaction, now: Timestamp) -> Self {
        let mut found: BTreeMap<Fingerprint, CallHistory<'a>> = BTreeMap::new();
        for call in calls {
            let state = call.state(now);
            if state == CallState::Refused {
                continue;
            }
            let fresh = CallHistory {
                newest: call,
                state,
                success: None,
                successes: 0,
                failures: 0,
                is_double: false,
                made: Vec::new(),
            };
            let entry = found.entry(call.fingerprint).or_insert(fresh);
            (entry.newest, entry.state) = (call, state);
            entry.is_double |= call.outcome.as_ref().is_some_and(|outcome| outcome.is_double);
            match state {
                CallState::Succeeded => {
                    entry.success = Some(call);
                    entry.successes += 1;
                    entry.failures = 0;
                    entry.made.extend(call.outcome.as_ref().and_then(created_name));
                }
                CallState::Failed => entry.failures += 1,
                _ => {}
            }
        }
        // The outcome of an execution outweighs a later refusal.
        let is_refused = |call: &&PastCall| call.lease_until.is_none() && !found.contains_key(&call.fingerprint);
        let refused = calls.iter().filter(is_refused).collect();
        let mut entries: Vec<CallHistory<'a>> = found.into_values().collect();
        entries.sort_by_key(|entry| entry.newest.seq);
        Self { entries, refused, calls, redaction }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = &CallHistory<'a>> {
        self.entries.iter()
    }

    /// Calls that were never permitted, oldest first.
    pub(super) fn refused(&self) -> &[&'a PastCall] {
        &self.refused
    }

    /// `read_file {path: a.rs}`.
    pub(super) fn describe_call(&self, call: &PastCall) -> String {
        format!("{} {}", call.tool, self.arguments(call))
    }

    /// The arguments of a call, in short.
    pub(super) fn arguments(&self, call: &PastCall) -> String {
        let arguments = call.arguments.as_deref();
        arguments
            .map_or("(arguments not stored)".to_owned(), |text| gist::arguments(text, self.redaction, ARGUMENTS_MAX))
    }

    /// The arguments of a call by its fingerprint.
    pub(crate) fn arguments_of(&self, fingerprint: Fingerprint) -> Option<String> {
        let call = self.calls.iter().rev().find(|call| call.fingerprint == fingerprint)?;
        Some(self.arguments(call))
    }
}

fn created_name(outcome: &PastOutcome) -> Option<&str> {
    outcome.gist.as_ref()?.made.as_deref()
}

impl CallHistory<'_> {
    /// `doc_1, doc_2`.
    pub(super) fn names(&self) -> Option<String> {
        let mut names = self.made.clone();
        names.dedup();
        let beyond = names.len().saturating_sub(NAMES_MAX);
        let left_out = if beyond > 0 { format!("{beyond} earlier, ") } else { String::new() };
        (!names.is_empty()).then(|| format!("{left_out}{}", names[beyond..].join(", ")))
    }
}

/// The gist of a success: `2 items: #1, #2 (2 matches in all, complete)`.
pub(crate) fn came_of(outcome: &PastOutcome) -> String {
    let says = match (&outcome.gist, outcome.result_bytes) {
        _ if outcome.is_inferred => "no answer, and a later attempt was told that it exists already".to_owned(),
        (Some(gist), _) => gist.says.clone(),
        (None, Some(bytes)) => format!("a result of {}, not stored", size(bytes)),
        (None, None) => "done".to_owned(),
    };
    let matches =
        outcome.total_matches.map(|n| if n == 1 { "1 match in all".to_owned() } else { format!("{n} matches in all") });
    let complete = outcome.is_complete.map(|is| if is { "complete".to_owned() } else { "not complete".to_owned() });
    let facts: Vec<String> = matches.into_iter().chain(complete).collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    format!("{}{facts}", gist::truncate_line(&says, GIST_MAX))
}

/// The error in a short line; empty without one.
pub(crate) fn error_line(outcome: &PastOutcome) -> String {
    gist::truncate_line(outcome.error.as_deref().unwrap_or_default(), ERROR_MAX)
}
