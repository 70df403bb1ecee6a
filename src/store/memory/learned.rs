//! Retry profiles in memory: the newest trials, counted as the rollups of PostgreSQL are
//! (docs/learning.md#in-postgresql).

use std::collections::{BTreeMap, VecDeque};

use crate::Learn;
use callgate_core::{
    domain::{
        event::Event,
        failure::FailureKind,
        ids::{SessionId, ToolName},
        profile::{
            CellCount, FollowUpKind, HALF_LIFE_MS, HALF_LIVES_KEPT, ProfileCounts, RECENT_HALF_LIFE_MS, RecentCount,
            ResidualState, RetryState, Trial, bucket,
        },
        time::Timestamp,
        violation::SelfCorrectionCount,
    },
    offline::event_store::EventStore,
};

/// Tool, earlier failure, kind of follow-up, bucket of the wait, and conditions.
type CellKey<'a> = (&'a ToolName, FailureKind, FollowUpKind, usize, RetryState);

/// Trials that are kept, the newest.
const TRIALS_MAX: usize = 10_000;

/// Trials of one tenant, and the outcomes of its refusals for arguments.
#[derive(Debug, Default)]
pub(super) struct LearnedCounts {
    /// Not counted yet.
    pending: Vec<Trial>,
    counted: VecDeque<Trial>,
    residuals: Vec<ResidualState>,
    version: u64,
    /// Refusals by tool, field and keyword, and those after which the field was valid.
    corrections: BTreeMap<(ToolName, String, String), (u64, u64)>,
}

impl LearnedCounts {
    /// Takes over an event that was appended to a tree.
    pub(super) fn apply(&mut self, events: &EventStore, root: &SessionId, event: &Event) {
        match event {
            Event::Judged(judged) => {
                for of in &judged.self_corrections {
                    let key = (judged.tool.clone(), of.field.clone(), of.rule.clone());
                    let (refusals, corrected) = self.corrections.entry(key).or_default();
                    *refusals += 1;
                    *corrected += u64::from(of.ok);
                }
            }
            Event::Settled(settled) => {
                let Some(ok) = settled.follow_up_ok else { return };
                let place = usize::try_from(settled.permit_seq).unwrap_or(0).saturating_sub(1);
                let Some(Event::Judged(judged)) = events.events(root).get(place) else { return };
                let Some(follow_up) = judged.follow_up.as_deref().cloned() else { return };
                self.pending.push(Trial { tool: judged.tool.clone(), follow_up, ok, at: settled.at });
            }
            Event::Controlled(_) => {}
        }
    }

    /// Counts the pending trials; returns their number.
    pub(super) fn count(&mut self, learn: Learn<'_>) -> u64 {
        let trials = std::mem::take(&mut self.pending);
        if trials.is_empty() {
            return 0;
        }
        for changed in learn(self.residuals.clone(), &trials) {
            self.residuals.retain(|known| known.kind != changed.kind);
            self.residuals.push(changed);
        }
        self.version += 1;
        let counted = trials.len() as u64;
        self.counted.extend(trials);
        self.counted.drain(..self.counted.len().saturating_sub(TRIALS_MAX));
        counted
    }

    /// Number of counting rounds with trials.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn self_corrections(&self) -> Vec<SelfCorrectionCount> {
        let count = |((tool, field, rule), (refusals, corrected)): (&(ToolName, String, String), &(u64, u64))| {
            let (tool, field, rule) = (tool.clone(), field.clone(), rule.clone());
            SelfCorrectionCount { tool, field, rule, refusals: *refusals, corrected: *corrected }
        };
        self.corrections.iter().map(count).collect()
    }

    /// The counts at `now`, and the residuals.
    pub(super) fn profiles(&self, now: Timestamp) -> (ProfileCounts, Vec<ResidualState>) {
        let mut cells: BTreeMap<CellKey<'_>, (f64, f64)> = BTreeMap::new();
        let mut recent: BTreeMap<(&ToolName, FailureKind), (f64, f64, f64)> = BTreeMap::new();
        for Trial { tool, follow_up, ok, at } in &self.counted {
            let (ok, age_ms) = (f64::from(u8::from(*ok)), now.since_ms(*at));
            if let Some(weight) = weight(age_ms, HALF_LIFE_MS) {
                let key = (tool, follow_up.failure, follow_up.kind, bucket(follow_up.waited_ms), follow_up.state);
                let (n, k) = cells.entry(key).or_default();
                *n += weight;
                *k += weight * ok;
            }
            if let Some(weight) = weight(age_ms, RECENT_HALF_LIFE_MS).filter(|_| follow_up.kind == FollowUpKind::Same) {
                let (n, k, expected) = recent.entry((tool, follow_up.failure)).or_default();
                *n += weight;
                *k += weight * ok;
                *expected += weight * follow_up.p_slow;
            }
        }
        let cell = |((tool, failure, kind, wait, state), (n, k))| {
            let tool = ToolName::clone(tool);
            CellCount { tool, failure, kind, wait, state, n, k }
        };
        let level = |((tool, failure), (n, k, expected))| {
            let tool = ToolName::clone(tool);
            RecentCount { tool, failure, n, k, expected }
        };
        let (cells, recent) = (cells.into_iter().map(cell).collect(), recent.into_iter().map(level).collect());
        (ProfileCounts { as_of: now, cells, recent }, self.residuals.clone())
    }
}

/// Weight of a trial of this age; none where it is too old to count.
fn weight(age_ms: u64, half_life_ms: u64) -> Option<f64> {
    let half_lives = age_ms as f64 / half_life_ms as f64;
    (half_lives <= f64::from(HALF_LIVES_KEPT)).then(|| (-half_lives).exp2())
}
