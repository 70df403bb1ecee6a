//! Figures of a replay, for people and as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use serde_json::Value;

use super::{
    closings::Closings,
    judge::{CallAssessment, RecordedComparison},
};
use crate::domain::finding::{Decision, Level};

/// Key in [`Summary::decisions`] for calls without a finding.
pub const NO_RULE: &str = "none";
const LABEL_WIDTH: usize = 12;

/// The figures of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Version of the judging policy.
    pub policy: String,
    /// True when refusals were applied; otherwise every recorded outcome was folded.
    pub enforced: bool,
    /// Recorded calls.
    pub calls: u64,
    /// Sessions, one per trace.
    pub sessions: u64,
    /// Number of decisions by rule; [`NO_RULE`] for calls without a finding.
    pub decisions: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Refused calls: REUSE, DENY and STOP.
    pub refused: RefusalCounts,
    /// `refused` by deciding rule.
    pub refused_by_rule: BTreeMap<String, RefusalCounts>,
    /// Calls that needed approval.
    pub asks: u64,
    /// Calls told to wait: neither right nor wrong, because they may be repeated.
    pub waits: WaitCounts,
    /// Closings and later new results.
    pub closed: Closings,
    /// Warnings of loop detectors, on permitted and refused calls.
    pub warnings: BTreeMap<String, u64>,
    /// Calls whose fingerprint has an earlier recorded result in the same trace.
    pub repeats: Repeats,
}

/// Refused calls compared with their recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RefusalCounts {
    /// The recorded result equals the previous one of the same call.
    pub rightly: u64,
    /// Stale REUSE: the recorded result differs from the previous one.
    pub answer_differed: u64,
    /// DENY or STOP of a new result, or of the first success of its call.
    pub wrongly: u64,
    /// No previous result to compare with, and it failed, has no outcome, or was answered by REUSE from a call with
    /// other arguments.
    pub unknown: u64,
}

/// Calls told to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WaitCounts {
    /// All of them.
    pub calls: u64,
    /// Those whose recorded result differs from the previous one: the answer had changed already.
    pub changed: u64,
}

/// Repeated calls by their result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Repeats {
    /// Same result: futile.
    pub same: u64,
    /// Different result.
    pub new: u64,
}

/// Derived shares and rates, rounded to two decimals.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Rates {
    /// Futile repeats that were refused, in percent; null without any.
    futile_refused_percent: Option<f64>,
    wrongly_per_thousand: f64,
    answer_differed_per_thousand: f64,
    warnings_per_thousand: BTreeMap<String, f64>,
}

impl RefusalCounts {
    fn count(&mut self, decision: Decision, assessed: &CallAssessment) {
        let counter = match (decision, assessed.compared) {
            (_, RecordedComparison::Same) => &mut self.rightly,
            (Decision::Reuse, RecordedComparison::New) => &mut self.answer_differed,
            (Decision::Deny | Decision::Stop, _) if assessed.is_new() => &mut self.wrongly,
            _ => &mut self.unknown,
        };
        *counter += 1;
    }
}

impl Summary {
    pub(super) fn new(policy: &str, enforced: bool) -> Self {
        Self { policy: policy.to_owned(), enforced, ..Self::default() }
    }

    pub(super) fn count(&mut self, assessed: &CallAssessment) {
        self.calls += 1;
        let decision = assessed.decision;
        let rule = assessed.winner().map_or(NO_RULE, |finding| &finding.rule);
        *self.decisions.entry(rule.to_owned()).or_default().entry(decision.as_str()).or_default() += 1;
        for warning in assessed.verdict.findings.iter().filter(|finding| finding.level == Some(Level::Warning)) {
            *self.warnings.entry(warning.rule.to_string()).or_default() += 1;
        }
        match assessed.compared {
            RecordedComparison::Same => self.repeats.same += 1,
            RecordedComparison::New => self.repeats.new += 1,
            RecordedComparison::Unknown => {}
        }
        match decision {
            Decision::Allow => {}
            Decision::Ask => self.asks += 1,
            Decision::Wait => {
                self.waits.calls += 1;
                self.waits.changed += u64::from(assessed.compared == RecordedComparison::New);
            }
            Decision::Reuse | Decision::Deny | Decision::Stop => {
                self.refused.count(decision, assessed);
                self.refused_by_rule.entry(rule.to_owned()).or_default().count(decision, assessed);
            }
        }
    }

    /// The counts and the derived rates.
    pub fn to_json(&self) -> serde_json::Result<Value> {
        let mut json = serde_json::to_value(self)?;
        json["rates"] = serde_json::to_value(self.rates())?;
        Ok(json)
    }

    fn rates(&self) -> Rates {
        let Self { refused, repeats, .. } = self;
        Rates {
            futile_refused_percent: (repeats.same > 0).then(|| rate(100.0, refused.rightly, repeats.same)),
            wrongly_per_thousand: rate(1_000.0, refused.wrongly, self.calls),
            answer_differed_per_thousand: rate(1_000.0, refused.answer_differed, self.calls),
            warnings_per_thousand: (self.warnings.iter())
                .map(|(rule, count)| (rule.clone(), rate(1_000.0, *count, self.calls)))
                .collect(),
        }
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |rule: &str| {
            if rule == NO_RULE { "no finding".to_owned() } else { rule.to_owned() }
        };
        let width = self.decisions.keys().map(|rule| name(rule).len()).max().unwrap_or(0).max(LABEL_WIDTH);
        let seen = |decision: &&Decision| self.decisions.values().any(|row| row.contains_key(decision.as_str()));
        let columns: Vec<&str> = Decision::ALL.iter().filter(seen).map(|decision| decision.as_str()).collect();
        write!(f, "{:width$}", "rule")?;
        columns.iter().try_for_each(|column| write!(f, " {column:>9}"))?;
        writeln!(f)?;
        for (rule, row) in &self.decisions {
            write!(f, "{:width$}", name(rule))?;
            for column in &columns {
                let count = row.get(column).map_or("-".to_owned(), u64::to_string);
                write!(f, " {count:>9}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, calls, sessions, refused, repeats, waits, .. } = self;
        let mode = if self.enforced {
            "enforced: a refused call was not run"
        } else {
            "shadow: a refused call ran all the same"
        };
        writeln!(f, "{calls} calls of {sessions} sessions, policy {policy}, {mode}\n")?;
        self.table(f)?;
        if self.decisions.iter().any(|(rule, row)| rule != NO_RULE && row.contains_key(Decision::Allow.as_str())) {
            writeln!(f, "ALLOW by a rule is a warning: the call was let through")?;
        }
        let Closings { runs, tools, fingerprints } = self.closed;
        let lines = [
            ("repeated", repeats.same, "gave the same result as the same call before"),
            ("", repeats.new, "gave a new result"),
            ("refused", refused.rightly, "rightly: the recorded result was the same as before"),
            ("", refused.answer_differed, "answer differed: a REUSE, and the recorded result was new"),
            ("", refused.wrongly, "wrongly: the recorded result was new, or the first of its call and a success"),
            ("", refused.unknown, "unknown: no earlier result to compare with, and no success that was lost"),
            ("to approve", self.asks, "a person was asked"),
            ("told to wait", waits.calls, "may ask again later: neither rightly nor wrongly refused"),
            ("", waits.changed, "of these, the recorded result was new"),
            ("closed", runs.closed, "runs"),
            ("", runs.productive, "of these, new results were recorded afterwards"),
            ("", tools.closed, "tools"),
            ("", fingerprints.closed, "calls with the same arguments"),
        ];
        writeln!(f)?;
        lines
            .iter()
            .try_for_each(|(label, count, meaning)| writeln!(f, "{label:LABEL_WIDTH$} {count:>9}  {meaning}"))?;
        for (rule, by_rule) in self.refused_by_rule.iter().filter(|(_, by_rule)| by_rule.wrongly > 0) {
            writeln!(f, "{:LABEL_WIDTH$} {:>9}  wrongly refused by {rule}", "", by_rule.wrongly)?;
        }
        self.warnings.iter().enumerate().try_for_each(|(at, (rule, count))| {
            let label = if at == 0 { "warned" } else { "" };
            let share = rate(1_000.0, *count, *calls);
            writeln!(f, "{label:LABEL_WIDTH$} {count:>9}  by {rule}: {share:.1} in a thousand calls")
        })
    }
}

/// `part` of `all`, times `scale`, rounded to two decimals.
fn rate(scale: f64, part: u64, all: u64) -> f64 {
    (scale * 100.0 * part as f64 / all.max(1) as f64).round() / 100.0
}
