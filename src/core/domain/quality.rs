//! Tool quality: design flaws of tools, as shown by their calls.

use std::{collections::BTreeMap, ops::AddAssign};

use super::{
    finding::Level,
    ids::{CallId, SessionId, ToolName},
    shard::Shard,
    similarity,
};

/// Maximum period, in days.
pub const DAYS_MAX: u32 = 90;
/// Maximum number of reported tools, and of tools with near duplicates.
pub const TOLD_MAX: usize = 500;
/// Maximum number of reported coerced fields per tool.
pub const COERCED_MAX: usize = 20;
/// Maximum number of compared pairs with equal results per hour.
pub const PAIRS_MAX: i64 = 200;
/// Maximum number of example calls per flaw.
pub const EVIDENCE_MAX: usize = 5;

/// Design flaw that a high rate indicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Many calls are retries.
    Retries,
    /// Agents loop with it.
    Loops,
    /// Agents repeat calls whose results they have.
    Duplicates,
    /// Its arguments are often invalid.
    Validation,
    /// Its arguments are often coerced from another type.
    Coercions,
    /// The outcomes of its calls are often unknown.
    UnknownOutcomes,
    /// It fails more often than it works.
    Failures,
    /// Its answers lack `is_complete`.
    MissingIsComplete,
}

impl Flaw {
    /// Every flaw, in the order in which ties are settled.
    pub const ALL: [Self; 8] = [
        Self::Retries,
        Self::Loops,
        Self::Duplicates,
        Self::Validation,
        Self::Coercions,
        Self::UnknownOutcomes,
        Self::Failures,
        Self::MissingIsComplete,
    ];

    /// The rate's name, as in SQL.
    #[must_use]
    pub const fn rate(self) -> &'static str {
        match self {
            Self::Retries => "retry_rate",
            Self::Loops => "loop_rate",
            Self::Duplicates => "duplicate_rate",
            Self::Validation => "validation_failure_rate",
            Self::Coercions => "coercion_rate",
            Self::UnknownOutcomes => "unknown_outcome_rate",
            Self::Failures => "failure_rate",
            Self::MissingIsComplete => "missing_is_complete_rate",
        }
    }

    /// Numerator and denominator of the rate; the same as in the view `tool_quality`.
    #[must_use]
    pub const fn share(self, of: &ToolCounts) -> (u64, u64) {
        match self {
            Self::Retries => (of.retries, of.permitted),
            Self::Loops => (of.loops, of.calls),
            Self::Duplicates => (of.duplicates, of.calls),
            Self::Validation => (of.bad_arguments, of.settled + of.refused_arguments),
            Self::Coercions => (of.coercions, of.calls),
            Self::UnknownOutcomes => (of.unknown_outcomes, of.settled),
            Self::Failures => (of.failed, of.settled),
            Self::MissingIsComplete => (of.silent, of.successes),
        }
    }

    /// The indicated design problem; the same text as in the view `tool_quality`.
    #[must_use]
    pub const fn problem(self) -> &'static str {
        match self {
            Self::Retries => "it fails in ways that pass: retry inside the tool",
            Self::Loops => "its answer does not say what to do next, or that nothing has changed",
            Self::Duplicates => "its answer does not say that it is complete",
            Self::Validation => "its arguments are not constrained, or not said clearly",
            Self::Coercions => "its arguments have other types than models expect",
            Self::UnknownOutcomes => "nobody reports what came of it, or it breaks off without an answer",
            Self::Failures => "it fails more often than it works",
            Self::MissingIsComplete => "its answer leaves open whether there is more",
        }
    }

    /// The remedy.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Retries => "retry short failures inside the tool, and report only what a caller can act on",
            Self::Loops => "let the answer say what has changed since the last call, and what to call next",
            Self::Duplicates => "return is_complete and total_matches, and say in words when there is nothing more",
            Self::Validation => "use enums, formats, ranges and integers in its schema, and name the fix in its errors",
            Self::Coercions => "give each field the type that models write, or show an example in its description",
            Self::UnknownOutcomes => {
                "report every outcome; let a write take an idempotency key, and offer a tool that looks its effect up"
            }
            Self::Failures => "mend it, or take it out of the tool list until it works",
            Self::MissingIsComplete => "return is_complete with every answer, or map it from the result by policy",
        }
    }
}

/// Counts of a tool, named like the columns of the view `tool_quality`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolCounts {
    pub calls: u64,
    pub permitted: u64,
    pub settled: u64,
    pub successes: u64,
    pub failed: u64,
    pub retries: u64,
    pub loops: u64,
    pub duplicates: u64,
    pub refused_arguments: u64,
    pub bad_arguments: u64,
    pub coercions: u64,
    pub over_budget: u64,
    pub unknown_outcomes: u64,
    pub silent: u64,
}

impl AddAssign<&Self> for ToolCounts {
    fn add_assign(&mut self, other: &Self) {
        self.calls += other.calls;
        self.permitted += other.permitted;
        self.settled += other.settled;
        self.successes += other.successes;
        self.failed += other.failed;
        self.retries += other.retries;
        self.loops += other.loops;
        self.duplicates += other.duplicates;
        self.refused_arguments += other.refused_arguments;
        self.bad_arguments += other.bad_arguments;
        self.coercions += other.coercions;
        self.over_budget += other.over_budget;
        self.unknown_outcomes += other.unknown_outcomes;
        self.silent += other.silent;
    }
}

/// Quality of one tool over a period. Rates are shares, 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolQuality {
    pub tool: ToolName,
    pub counts: ToolCounts,
    /// Example calls of the worst flaw, newest first.
    pub evidence: Vec<CallName>,
    /// Coerced fields with their number of calls, the most frequent first.
    pub coerced: Vec<(String, u64)>,
}

fn share((part, of): (u64, u64)) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl ToolQuality {
    /// The worst flaw. Failures count above one half, because some are part of the work; a missing `is_complete` counts
    /// only without another flaw.
    #[must_use]
    pub fn worst(&self) -> Option<Flaw> {
        worst(&self.counts)
    }

    /// The rate of a flaw.
    #[must_use]
    pub fn rate(&self, flaw: Flaw) -> f64 {
        share(flaw.share(&self.counts))
    }

    /// Share of calls refused for their arguments.
    #[must_use]
    pub fn validation_refusal_rate(&self) -> f64 {
        share((self.counts.refused_arguments, self.counts.calls))
    }

    /// Share of calls refused for an exhausted budget, which is no flaw of the tool.
    #[must_use]
    pub fn budget_refusal_rate(&self) -> f64 {
        share((self.counts.over_budget, self.counts.calls))
    }
}

fn worst(counts: &ToolCounts) -> Option<Flaw> {
    let least = |flaw: Flaw| if flaw == Flaw::Failures { 0.5 } else { 0.0 };
    let rates = Flaw::ALL.map(|flaw| (flaw, share(flaw.share(counts))));
    let rated = || rates.into_iter().filter(|(flaw, rate)| *rate > least(*flaw));
    let others = rated().filter(|(flaw, _)| *flaw != Flaw::MissingIsComplete).rev();
    let worst = others.max_by(|(_, a), (_, b)| a.total_cmp(b)).or_else(|| rated().next());
    worst.map(|(flaw, _)| flaw)
}

/// A called name without a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    pub tool: ToolName,
    /// Number of calls.
    pub calls: u64,
    /// Sessions that called it, summed over hours.
    pub sessions: u64,
}

/// Names a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallName {
    pub session: SessionId,
    pub call_id: CallId,
}

/// Stored location of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredName {
    pub name: CallName,
    pub shard: Shard,
    /// Partition, in days since the Unix epoch.
    pub epoch: i32,
}

/// Two successes of one tool in one session with equal results and different arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EqualResults {
    pub tool: ToolName,
    /// The earlier call, and its arguments in canonical form.
    pub first: (StoredName, String),
    /// The later one.
    pub second: (StoredName, String),
}

/// Two nearly equal calls with equal results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearPair {
    pub tool: ToolName,
    /// Number of such pairs.
    pub pairs: u64,
    /// Differing fields of the example.
    pub fields: Vec<String>,
    /// The example.
    pub example: (StoredName, StoredName),
}

impl NearPair {
    /// The near duplicates among pairs with equal results, by tool; the first one is the example.
    #[must_use]
    pub fn by_tool(equal: Vec<EqualResults>) -> BTreeMap<ToolName, Self> {
        let mut by_tool: BTreeMap<ToolName, Self> = BTreeMap::new();
        for EqualResults { tool, first: (first, a), second: (second, b) } in equal {
            if !similarity::are_near(&a, &b) {
                continue;
            }
            let fields = || similarity::differing_fields(&a, &b);
            by_tool
                .entry(tool.clone())
                .or_insert_with(|| Self { tool, pairs: 0, fields: fields(), example: (first, second) })
                .pairs += 1;
        }
        by_tool
    }
}

/// Counts of one tool in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolHour {
    pub counts: ToolCounts,
    /// Example calls per flaw, newest first.
    pub evidence: BTreeMap<Flaw, Vec<StoredName>>,
    /// Coerced fields with their number of calls.
    pub coerced: BTreeMap<String, u64>,
}

/// Counts of all tools in a period: one hour, or several merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QualityHour {
    pub tools: BTreeMap<ToolName, ToolHour>,
    pub near_pairs: BTreeMap<ToolName, NearPair>,
    /// Loops by their highest level.
    pub loop_ends: BTreeMap<Level, u64>,
    /// Names without a tool: calls, and sessions.
    pub unknown: BTreeMap<ToolName, (u64, u64)>,
}

impl QualityHour {
    /// Merges an earlier period; the newest examples stay.
    pub fn add(&mut self, earlier: &Self) {
        for (tool, theirs) in &earlier.tools {
            let ours = self.tools.entry(tool.clone()).or_default();
            ours.counts += &theirs.counts;
            for (flaw, calls) in &theirs.evidence {
                let shown = ours.evidence.entry(*flaw).or_default();
                shown.extend(calls.iter().take(EVIDENCE_MAX.saturating_sub(shown.len())).cloned());
            }
            for (field, calls) in &theirs.coerced {
                *ours.coerced.entry(field.clone()).or_default() += calls;
            }
        }
        for (tool, pair) in &earlier.near_pairs {
            let ours = self.near_pairs.entry(tool.clone()).or_insert_with(|| NearPair { pairs: 0, ..pair.clone() });
            ours.pairs += pair.pairs;
        }
        for (level, loops) in &earlier.loop_ends {
            *self.loop_ends.entry(*level).or_default() += loops;
        }
        for (tool, (calls, sessions)) in &earlier.unknown {
            let ours = self.unknown.entry(tool.clone()).or_default();
            *ours = (ours.0 + calls, ours.1 + sessions);
        }
    }

    /// The example calls of the tool's worst flaw.
    #[must_use]
    pub fn evidence(&self, tool: &ToolName) -> &[StoredName] {
        let shown = self.tools.get(tool).and_then(|hour| hour.evidence.get(&worst(&hour.counts)?));
        shown.map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_the_worst_and_silence_only_where_nothing_else_is() {
        // Of ten each; a share of the permits, calls, settled and successes, in the order of the flaws.
        let quality = |shown: [u64; 8]| {
            let [retries, loops, duplicates, bad_arguments, coercions, unknown_outcomes, failed, silent] = shown;
            let all = ToolCounts { calls: 10, permitted: 10, settled: 10, successes: 10, ..ToolCounts::default() };
            let counts = ToolCounts { retries, loops, duplicates, bad_arguments, coercions, ..all };
            worst(&ToolCounts { unknown_outcomes, failed, silent, ..counts })
        };
        assert_eq!(worst(&ToolCounts::default()), None);
        assert_eq!(quality([0; 8]), None);
        assert_eq!(quality([0, 0, 0, 0, 0, 0, 0, 10]), Some(Flaw::MissingIsComplete));
        assert_eq!(quality([1, 0, 3, 2, 0, 0, 4, 10]), Some(Flaw::Duplicates));
        assert_eq!(quality([1, 1, 0, 1, 0, 0, 0, 10]), Some(Flaw::Retries), "ties: the first");
        assert_eq!(quality([4, 0, 0, 0, 0, 0, 10, 0]), Some(Flaw::Failures));
        assert_eq!(quality([0, 0, 0, 10, 0, 0, 10, 0]), Some(Flaw::Validation), "it says more");
    }

    #[test]
    fn hours_add_up_and_the_newest_calls_are_shown() {
        let tool = ToolName::parse("tool", "t").expect("a good name");
        let call = |hour: u32, n: u32| StoredName {
            name: CallName {
                session: SessionId::parse("session", &format!("s{hour}")).expect("a good name"),
                call_id: CallId::parse("call", &format!("c{n}")).expect("a good name"),
            },
            shard: Shard(1),
            epoch: 1,
        };
        let hour = |no: u32, shown: u32| {
            let counts = ToolCounts { calls: 10, permitted: 10, retries: shown.into(), ..ToolCounts::default() };
            let evidence = [(Flaw::Retries, (0..shown).map(|n| call(no, n)).collect())].into();
            let coerced = [("n".to_owned(), 2)].into();
            let pair = NearPair {
                tool: tool.clone(),
                pairs: 2,
                fields: vec![format!("f{no}")],
                example: (call(no, 0), call(no, 1)),
            };
            QualityHour {
                tools: [(tool.clone(), ToolHour { counts, evidence, coerced })].into(),
                near_pairs: [(tool.clone(), pair)].into(),
                loop_ends: [(Level::Break, 1)].into(),
                unknown: [(tool.clone(), (3, 2))].into(),
            }
        };
        let mut all = QualityHour::default();
        all.add(&hour(3, 2));
        all.add(&hour(2, 4));
        all.add(&hour(1, 4));
        let told = &all.tools[&tool];
        assert_eq!((told.counts.calls, told.counts.retries, told.coerced["n"]), (30, 10, 6));
        let shown: Vec<&str> = all.evidence(&tool).iter().map(|call| call.name.session.as_str()).collect();
        assert_eq!(shown, ["s3", "s3", "s2", "s2", "s2"], "five, the newest first");
        assert_eq!((all.near_pairs[&tool].pairs, &all.near_pairs[&tool].fields[..]), (6, &["f3".to_owned()][..]));
        assert_eq!((all.loop_ends[&Level::Break], all.unknown[&tool]), (3, (9, 6)));
    }
}
