//! Closings of a replay: the runs, tools and fingerprints that a verdict closes, and the new results recorded later.

use std::collections::BTreeMap;

use serde::Serialize;

use super::trace::TraceRow;
use crate::{
    domain::{
        finding::{Decision, Finding, Level},
        fingerprint::Fingerprint,
        ids::{RunId, SessionId, ToolName},
    },
    rules::BreakScope,
};

/// Closings by their scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Closings {
    /// Whole runs: a STOP, or a break of a rule that closes the run.
    pub runs: ClosingCounts,
    /// Tools within a run.
    pub tools: ClosingCounts,
    /// Calls with the same arguments within a run.
    pub fingerprints: ClosingCounts,
}

/// Closings of one scope. A run, tool or fingerprint counts once, however often it is closed again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ClosingCounts {
    pub closed: u64,
    /// Of these, the ones with at least one new result afterwards.
    pub productive: u64,
    /// New results of calls in the scope after the closing call.
    pub new_results: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ClosedScope {
    Run,
    Tool(ToolName),
    Fingerprint(Fingerprint),
}

/// New results after each closing, by run.
#[derive(Debug, Default)]
pub(super) struct ClosingTracker(BTreeMap<(SessionId, Option<RunId>), BTreeMap<ClosedScope, u64>>);

impl ClosingTracker {
    /// Adds a judged call: its new result counts for earlier closings, and its findings may add some.
    pub(super) fn observe<'a>(
        &mut self,
        row: &TraceRow,
        fingerprint: Fingerprint,
        is_new: bool,
        findings: impl Iterator<Item = (&'a Finding, Option<BreakScope>)>,
    ) {
        let run = (row.trace.clone(), row.run.clone());
        let tool = ClosedScope::Tool(row.tool.clone());
        let call = ClosedScope::Fingerprint(fingerprint);
        if let Some(closed) = self.0.get_mut(&run).filter(|_| is_new) {
            for scope in [&ClosedScope::Run, &tool, &call] {
                closed.get_mut(scope).into_iter().for_each(|new_results| *new_results += 1);
            }
        }
        for (finding, closes) in findings {
            let scope = match (finding.decision, finding.level, closes) {
                (Decision::Stop, ..) | (_, Some(Level::Break), Some(BreakScope::Run)) => ClosedScope::Run,
                (_, Some(Level::Break), Some(BreakScope::Tool)) => tool.clone(),
                (_, Some(Level::Break), Some(BreakScope::Call)) => call.clone(),
                _ => continue,
            };
            self.0.entry(run.clone()).or_default().entry(scope).or_default();
        }
    }

    pub(super) fn counts(&self) -> Closings {
        let mut all = Closings::default();
        for (scope, new_results) in self.0.values().flatten() {
            let counts = match scope {
                ClosedScope::Run => &mut all.runs,
                ClosedScope::Tool(_) => &mut all.tools,
                ClosedScope::Fingerprint(_) => &mut all.fingerprints,
            };
            counts.closed += 1;
            counts.productive += u64::from(*new_results > 0);
            counts.new_results += new_results;
        }
        all
    }
}
