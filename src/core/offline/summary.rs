//! What a replay came to, for people and as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::judge::{Assessed, Compared};
use crate::domain::finding::{Decision, Level};

/// The key in [`Summary::decisions`] of calls that no rule had anything to say about.
pub const NO_RULE: &str = "none";
const LABEL_WIDTH: usize = 12;

/// The figures of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The version of the policy that judged.
    pub policy: String,
    /// True when refusals held; else every recorded outcome was taken in, whatever the verdict.
    pub enforced: bool,
    /// Recorded calls.
    pub calls: u64,
    /// Sessions, each a trace.
    pub sessions: u64,
    /// How often each rule decided on what; [`NO_RULE`] for calls without a finding.
    pub decisions: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Refused calls, without WAITs.
    pub refused: Refused,
    /// Calls that were to wait: neither right nor wrong, since they may be asked again.
    pub waits: u64,
    /// How often each loop detector warned, of calls that were let through and of others.
    pub warnings: BTreeMap<String, u64>,
    /// Calls whose fingerprint has an earlier recorded result in the same trace.
    pub repeats: Repeats,
}

/// Refused calls by what their recording shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The recorded result equalled the previous one of the same call.
    pub rightly: u64,
    /// The recorded result was new, or the first of its call and a success.
    pub wrongly: u64,
    /// There is no previous result and it failed, or no recorded outcome.
    pub unknown: u64,
}

/// Repeated calls by what they brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Repeats {
    /// The same result as before.
    pub same: u64,
    /// Another result than before.
    pub new: u64,
}

impl Summary {
    pub(super) fn new(policy: &str, enforced: bool) -> Self {
        Self { policy: policy.to_owned(), enforced, ..Self::default() }
    }

    pub(super) fn count(&mut self, assessed: &Assessed) {
        self.calls += 1;
        let rule = assessed.winner().map_or(NO_RULE, |finding| &finding.rule);
        let decisions = self.decisions.entry(rule.to_owned()).or_default();
        *decisions.entry(assessed.decision.as_str()).or_default() += 1;
        for warning in assessed.verdict.findings.iter().filter(|finding| finding.level == Some(Level::Warning)) {
            *self.warnings.entry(warning.rule.to_string()).or_default() += 1;
        }
        match assessed.compared {
            Compared::Same => self.repeats.same += 1,
            Compared::New => self.repeats.new += 1,
            Compared::Unknown => {}
        }
        match (assessed.decision, assessed.compared) {
            (Decision::Allow, _) => {}
            (Decision::Wait, _) => self.waits += 1,
            (_, Compared::Same) => self.refused.rightly += 1,
            (_, Compared::New) => self.refused.wrongly += 1,
            (_, Compared::Unknown) if assessed.succeeded => self.refused.wrongly += 1,
            (_, Compared::Unknown) => self.refused.unknown += 1,
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
        let lines = [
            ("repeated", repeats.same, "gave the same result as the same call before"),
            ("", repeats.new, "gave a new result"),
            ("refused", refused.rightly, "rightly: the recorded result was the same as before"),
            ("", refused.wrongly, "wrongly: the recorded result was new, or the first of its call and a success"),
            ("", refused.unknown, "unknown: it failed, with no earlier result to compare with; or no recorded outcome"),
            ("told to wait", *waits, "may ask again later: neither rightly nor wrongly refused"),
        ];
        writeln!(f)?;
        lines
            .iter()
            .try_for_each(|(label, count, meaning)| writeln!(f, "{label:LABEL_WIDTH$} {count:>9}  {meaning}"))?;
        self.warnings.iter().enumerate().try_for_each(|(at, (rule, count))| {
            let label = if at == 0 { "warned" } else { "" };
            let share = 1_000.0 * *count as f64 / (*calls).max(1) as f64;
            writeln!(f, "{label:LABEL_WIDTH$} {count:>9}  by {rule}: {share:.1} in a thousand calls")
        })
    }
}
