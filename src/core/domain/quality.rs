//! How well tools suit agents: what the calls show of their design.

use std::{collections::BTreeMap, ops::AddAssign};

use super::{
    finding::Level,
    ids::{CallId, SessionId, ToolName},
    shard::Shard,
    similarity,
};

/// Days that may be asked for.
pub const DAYS_MAX: u32 = 90;
/// Tools, and tools with near duplicates, that are told of.
pub const TOLD_MAX: usize = 500;
/// Fields of a tool that were read as another type, and are told of.
pub const COERCED_MAX: usize = 20;
/// Pairs of an hour with equal results that are compared.
pub const PAIRS_MAX: i64 = 200;
/// Calls that are shown of a flaw.
pub const EVIDENCE_MAX: usize = 5;

/// What a high rate says of a tool's design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Many calls are retries.
    Retries,
    /// Agents go round in circles with it.
    Loops,
    /// Agents ask for what they have.
    Duplicates,
    /// Agents get its arguments wrong.
    Validation,
    /// Agents write its arguments as another type.
    Coercions,
    /// Nobody knows what came of its calls.
    UnknownOutcomes,
    /// It fails more often than it works.
    Failures,
    /// Its answers do not say whether they are complete.
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

    /// What it is a share of: how many show it, of how many. The view `tool_quality` says the same.
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

    /// The problem of design that it points to; the view `tool_quality` says the same.
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

    /// What to do about it.
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

/// What was counted of a tool; the columns of the view `tool_quality` are called so.
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

/// One tool over some time. Rates are shares, 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolQuality {
    pub tool: ToolName,
    pub counts: ToolCounts,
    /// Calls that show the worst, the newest first.
    pub evidence: Vec<CallName>,
    /// Fields that were read as another type, with their calls, the most frequent first.
    pub coerced: Vec<(String, u64)>,
}

fn share((part, of): (u64, u64)) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl ToolQuality {
    /// The worst flaw; failures count above one half (some are part of the work), and that answers do not say whether
    /// they are complete counts only where nothing else does.
    #[must_use]
    pub fn worst(&self) -> Option<Flaw> {
        worst(&self.counts)
    }

    /// The rate of a flaw.
    #[must_use]
    pub fn rate(&self, flaw: Flaw) -> f64 {
        share(flaw.share(&self.counts))
    }

    /// The share of its calls that were refused for their arguments before they ran.
    #[must_use]
    pub fn validation_refusal_rate(&self) -> f64 {
        share((self.counts.refused_arguments, self.counts.calls))
    }

    /// The share of its calls that were refused because a budget was spent, which says nothing of the tool.
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

/// A name that agents called, and that is no tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    pub tool: ToolName,
    /// Calls to it.
    pub calls: u64,
    /// Sessions that called it in an hour; of several hours their sum.
    pub sessions: u64,
}

/// Names a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallName {
    pub session: SessionId,
    pub call_id: CallId,
}

/// A call, and where it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredName {
    pub name: CallName,
    pub shard: Shard,
    /// In days since the Unix epoch.
    pub epoch: i32,
}

/// Two successes of one tool in one session with the same result and other arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EqualResults {
    pub tool: ToolName,
    /// The earlier call, and its arguments in canonical form.
    pub first: (StoredName, String),
    /// The later one.
    pub second: (StoredName, String),
}

/// Two calls that differ in writing and not in result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearPair {
    pub tool: ToolName,
    /// How many such pairs of it were found.
    pub pairs: u64,
    /// The fields in which the example differs.
    pub fields: Vec<String>,
    /// The example.
    pub example: (StoredName, StoredName),
}

impl NearPair {
    /// Those of pairs with equal results that are nearly the same in writing, by tool; the first one is the example.
    #[must_use]
    pub fn all(equal: Vec<EqualResults>) -> BTreeMap<ToolName, Self> {
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

/// What calls of some time say of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolHour {
    pub counts: ToolCounts,
    /// Calls that show a flaw, the newest first.
    pub evidence: BTreeMap<Flaw, Vec<StoredName>>,
    /// Fields that were read as another type, with their calls.
    pub coerced: BTreeMap<String, u64>,
}

/// What calls of some time say of the tools: an hour, or several together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QualityHour {
    pub tools: BTreeMap<ToolName, ToolHour>,
    pub near_pairs: BTreeMap<ToolName, NearPair>,
    /// Loops by the highest level that they reached.
    pub loop_ends: BTreeMap<Level, u64>,
    /// Names that are no tools: calls, and sessions.
    pub unknown: BTreeMap<ToolName, (u64, u64)>,
}

impl QualityHour {
    /// Adds an earlier time: of what is shown as an example, the newest stays.
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

    /// All calls that would be shown of a tool: of its worst flaw.
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
