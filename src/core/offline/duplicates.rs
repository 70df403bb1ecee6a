//! Injected duplicates of recorded calls, and how many of them a policy permits.

use std::{collections::BTreeMap, fmt};

use super::{
    judge::{BASE, STEP_MS, outcome, request},
    trace::TraceRow,
    world::World,
};
use crate::{
    domain::{
        effect::EffectKind,
        finding::Decision,
        ids::{CallId, DEFAULT_TENANT, SessionId},
        outcome::OutcomeStatus,
        time::Timestamp,
    },
    policy::Policy,
    rules::Mode,
};

/// Duplicates of one tool.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Doubles {
    /// Number of duplicates: one per recorded success.
    pub asked: u64,
    /// Number of permitted duplicates.
    pub let_through: u64,
    /// The policy declares the tool a write.
    pub is_write: bool,
}

/// Proposes each recorded success a second time, right after it; by tool.
///
/// # Errors
/// A call that cannot be judged, by its session and id.
pub fn doubles(rows: &[TraceRow], mut policy: Policy) -> Result<BTreeMap<String, Doubles>, String> {
    // Recorded calls did run; only their duplicates are enforced.
    let judging = policy.clone();
    policy.mode = Mode::Shadow;
    let mut worlds: BTreeMap<SessionId, (World, Timestamp)> = BTreeMap::new();
    let mut doubles: BTreeMap<String, Doubles> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.refused) {
        let start = (World::new(DEFAULT_TENANT), BASE);
        let (world, clock) = worlds.entry(row.root().clone()).or_insert(start);
        let now = row.at.unwrap_or(clock.plus_ms(STEP_MS)).max(*clock);
        *clock = now;
        let proposal = policy.propose(request(row));
        let named = |rejection: &dyn fmt::Debug| format!("{} {}: {rejection:?}", row.trace, row.call_id);
        let (verdict, _) = world.evaluate(&policy, &proposal, None, now).map_err(|rejection| named(&rejection))?;
        let Some(report) = outcome(row).filter(|_| verdict.permit.is_some()) else { continue };
        world.record(&policy, &report, now).map_err(|rejection| named(&rejection))?;
        if report.status != OutcomeStatus::Success {
            continue;
        }
        let mut again = request(row);
        again.call_id = CallId::parse("call_id", &format!("{}-again", row.call_id)).map_err(|e| e.problem)?;
        let again = judging.propose(again);
        let verdict = world.preview(&judging, &again, None, now.plus_ms(1)).map_err(|rejection| named(&rejection))?;
        let of_tool = doubles.entry(row.tool.to_string()).or_default();
        of_tool.asked += 1;
        of_tool.let_through += u64::from(verdict.decision == Decision::Allow);
        of_tool.is_write |= again.effect.kind == EffectKind::Write;
    }
    Ok(doubles)
}
