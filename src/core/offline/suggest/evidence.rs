//! Evidence of effects in recorded calls: repetitions show whether a call in between changed their result. Names are
//! not interpreted.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    domain::{
        answer::{ComparableResult, ResultDifference, ResultMarkers},
        ids::ToolName,
        time::Timestamp,
    },
    offline::trace::TraceRow,
};

/// Minimum number of changed repetitions, and of sessions with one, for a write.
const WITNESSED_MIN: usize = 2;
/// A write changes at least one in this many of its chances.
const CHANCES_A_CHANGE: usize = 4;
/// Maximum share of changes by other causes, as one in this many.
const OTHER_CAUSES: f64 = 5.0;
/// Minimum number of chances of a harmless tool.
const CHANCES_MIN: usize = 10;
/// A harmless tool precedes at most one change in this many chances, because other actors change the world, too.
const BY_CHANCE: usize = 20;
/// Minimum number of repetitions with nothing in between, for a poll.
const LOOKS_MIN: usize = 3;

/// The same call again, in one session.
#[derive(Debug)]
struct Repetition {
    session: usize,
    changed: bool,
    /// Only names changed: another thing was created or taken, which no poll does.
    names_another: bool,
    /// Other tools that succeeded in between.
    between: BTreeSet<ToolName>,
}

/// Effect of a tool on the repetitions of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RepetitionEvidence {
    /// Tool whose result changed.
    pub(super) of: ToolName,
    /// Number of changes with the tool in between.
    pub(super) changed: usize,
    /// Number of repetitions with it in between.
    pub(super) chances: usize,
    /// Number of changes without it.
    pub(super) otherwise: usize,
    /// Number of repetitions without it.
    pub(super) without: usize,
}

/// Suggested effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SuggestedEffect {
    Write(RepetitionEvidence),
    /// Repetitions of other tools around it, and the number that changed.
    Harmless {
        chances: usize,
        changed: usize,
    },
    /// Repetitions with nothing in between, and the number with new results.
    Poll {
        looks: usize,
        changed: usize,
    },
}

/// All repetitions, by tool.
#[derive(Debug, Default)]
pub(super) struct Evidence(BTreeMap<ToolName, Vec<Repetition>>);

impl Evidence {
    pub(super) fn of(rows: &[TraceRow]) -> Self {
        type LastResults = BTreeMap<(ToolName, String), (String, ResultMarkers, BTreeSet<ToolName>)>;
        let mut sessions: BTreeMap<String, (usize, LastResults)> = BTreeMap::new();
        let mut found = Self::default();
        for row in rows.iter().filter(|row| !row.refused) {
            let Some(result) = row.result.as_ref().filter(|result| !result.is_error) else { continue };
            let number = sessions.len();
            let (session, last) = sessions.entry(row.trace.to_string()).or_insert_with(|| (number, LastResults::new()));
            let key = (row.tool.clone(), row.arguments.canonical());
            let marks = ComparableResult::of(&result.text, &[], Timestamp::default()).marks;
            let before = last.insert(key, (result.identity(), marks.clone(), BTreeSet::new()));
            for ((tool, _), (_, _, since)) in last.iter_mut().filter(|((tool, _), _)| *tool != row.tool) {
                debug_assert!(*tool != row.tool, "its own calls are no other cause");
                since.insert(row.tool.clone());
            }
            if let Some((identity, marks_before, between)) = before {
                let changed = identity != result.identity();
                let names_another = changed && marks.compared_with(&marks_before, &[]) != ResultDifference::News;
                let repetition = Repetition { session: *session, changed, names_another, between };
                found.0.entry(row.tool.clone()).or_default().push(repetition);
            }
        }
        found
    }

    /// Number of repetitions of a tool, and of changed ones.
    pub(super) fn repetitions(&self, tool: &ToolName) -> (usize, usize) {
        let all = self.0.get(tool).map_or(&[][..], Vec::as_slice);
        (all.len(), all.iter().filter(|one| one.changed).count())
    }

    /// Suggested effect by tool; none with too little evidence.
    pub(super) fn suggest_effects(&self, tools: &BTreeSet<ToolName>) -> BTreeMap<ToolName, SuggestedEffect> {
        let mut shown: BTreeMap<ToolName, SuggestedEffect> = BTreeMap::new();
        for tool in tools {
            shown.extend(self.witness(tool).map(|witness| (tool.clone(), SuggestedEffect::Write(witness))));
        }
        let writes: BTreeSet<ToolName> = shown.keys().cloned().collect();
        for tool in tools.difference(&writes) {
            let found = self.poll(tool).or_else(|| self.harmless(tool, &writes));
            shown.extend(found.map(|found| (tool.clone(), found)));
        }
        shown
    }

    /// The strongest evidence that `tool` changed another's result.
    fn witness(&self, tool: &ToolName) -> Option<RepetitionEvidence> {
        let others = self.0.keys().filter(|of| *of != tool);
        others.filter_map(|of| self.case(tool, of)).max_by_key(|witness| witness.changed)
    }

    fn case(&self, tool: &ToolName, of: &ToolName) -> Option<RepetitionEvidence> {
        let (with, without): (Vec<&Repetition>, Vec<&Repetition>) =
            self.0.get(of)?.iter().partition(|one| one.between.contains(tool));
        let changes: Vec<&&Repetition> = with.iter().filter(|one| one.changed).collect();
        let sessions: BTreeSet<usize> = changes.iter().map(|one| one.session).collect();
        let otherwise = without.iter().filter(|one| one.changed).count();
        let is_alone = changes.iter().all(|one| one.between.len() == 1);
        // With nothing to compare it with, only what ran alone shows anything.
        let by_others = match without.len() {
            0 if is_alone => 0.0,
            0 => return None,
            all => otherwise as f64 / all as f64 * with.len() as f64,
        };
        let is_enough = changes.len() >= WITNESSED_MIN
            && sessions.len() >= WITNESSED_MIN
            && changes.len() * CHANCES_A_CHANGE >= with.len()
            && by_others * OTHER_CAUSES < changes.len() as f64;
        // Two tools that change each other are two polls that take turns.
        let back = self.0.get(tool).into_iter().flatten();
        let back = back.filter(|one| one.changed && one.between.contains(of)).count();
        let witness = RepetitionEvidence {
            of: of.clone(),
            changed: changes.len(),
            chances: with.len(),
            otherwise,
            without: without.len(),
        };
        (is_enough && back * BY_CHANCE <= witness.changed).then_some(witness)
    }

    /// Evidence of a harmless tool: many repetitions around it, of which hardly any changed, without writes in between.
    fn harmless(&self, tool: &ToolName, writes: &BTreeSet<ToolName>) -> Option<SuggestedEffect> {
        let steady = self.0.iter().filter(|(of, _)| *of != tool && self.poll(of).is_none());
        let all = steady.flat_map(|(_, repetitions)| repetitions);
        let stood = all.filter(|one| one.between.contains(tool) && one.between.is_disjoint(writes));
        let stood: Vec<&Repetition> = stood.collect();
        let (chances, changed) = (stood.len(), stood.iter().filter(|one| one.changed).count());
        (chances >= CHANCES_MIN && changed * BY_CHANCE <= chances)
            .then_some(SuggestedEffect::Harmless { chances, changed })
    }

    /// Evidence of a poll: its result changes by itself, but not at every call; a tool with always new results may
    /// create them.
    fn poll(&self, tool: &ToolName) -> Option<SuggestedEffect> {
        let alone: Vec<&Repetition> = self.0.get(tool)?.iter().filter(|one| one.between.is_empty()).collect();
        let (looks, changed) = (alone.len(), alone.iter().filter(|one| one.changed).count());
        let is_poll = looks >= LOOKS_MIN
            && changed > 0
            && changed < looks
            && changed * 5 >= looks
            && !alone.iter().any(|one| one.names_another);
        is_poll.then_some(SuggestedEffect::Poll { looks, changed })
    }
}
