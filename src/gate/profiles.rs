//! What was learned, for people: retry profiles and the quality of tools.

use std::collections::BTreeMap;

use super::{Gate, GateError};
use crate::{
    domain::{
        failure::FailureKind,
        finding::Level,
        ids::{TenantId, ToolName},
        profile::{NEAR, RetryState},
        quality::{CallName, EqualResults, ToolQuality},
        similarity,
    },
    retry::profiles::Profile,
};

/// Two calls that differ in writing and not in result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearPair {
    /// The tool.
    pub tool: ToolName,
    /// How many such pairs of it were found.
    pub pairs: u64,
    /// The fields in which the example differs.
    pub fields: Vec<String>,
    /// The example.
    pub example: (CallName, CallName),
}

/// How well tools suit agents.
#[derive(Debug, Clone, PartialEq)]
pub struct QualityReport {
    /// The tools, the worst first.
    pub tools: Vec<ToolQuality>,
    /// What the canonicalisation should have met, the most frequent first.
    pub near_pairs: Vec<NearPair>,
    /// Loops that ended at each level.
    pub loop_ends: Vec<(Level, u64)>,
}

impl Gate {
    /// The retry profiles of a tenant, by tool and kind of failure, those after `after`; of one tool or kind, or all.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when they cannot be read.
    pub async fn retry_profiles(
        &self,
        tenant: TenantId,
        tool: Option<&ToolName>,
        kind: Option<FailureKind>,
        after: Option<&(ToolName, FailureKind)>,
    ) -> Result<Vec<Profile>, GateError> {
        let profiles = self.read_profiles(tenant).await?;
        let now = self.store.now();
        let wanted = |(known, of): &(&ToolName, FailureKind)| {
            tool.is_none_or(|tool| tool == *known)
                && kind.is_none_or(|kind| kind == *of)
                && after.is_none_or(|(tool, kind)| (*known, of) > (tool, kind))
        };
        let known = profiles.estimate.known().filter(wanted);
        let state = RetryState::default();
        Ok(known.map(|(tool, kind)| profiles.profile(&self.policy().retry, tool, kind, state, now)).collect())
    }

    /// One retry profile, in one state; none when no follow-up was counted for it.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when it cannot be read.
    pub async fn retry_profile(
        &self,
        tenant: TenantId,
        tool: &ToolName,
        kind: FailureKind,
        state: RetryState,
    ) -> Result<Option<Profile>, GateError> {
        let profiles = self.read_profiles(tenant).await?;
        let is_known = profiles.estimate.known().any(|known| known == (tool, kind));
        Ok(is_known.then(|| profiles.profile(&self.policy().retry, tool, kind, state, self.store.now())))
    }

    /// How well tools suit agents, over the last days; one tool, or all.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when it cannot be read.
    pub async fn quality(
        &self,
        tenant: TenantId,
        tool: Option<&ToolName>,
        days: i32,
    ) -> Result<QualityReport, GateError> {
        let mut tools = self.store.tool_quality(tenant, tool, days).await?;
        let badness = |quality: &ToolQuality| {
            quality.worst().map_or((false, 0.0), |flaw| {
                (flaw != crate::domain::quality::Flaw::MissingIsComplete, quality.rate(flaw))
            })
        };
        tools.sort_by(|a, b| {
            let ((a_counts, a_rate), (b_counts, b_rate)) = (badness(a), badness(b));
            b_counts.cmp(&a_counts).then(b_rate.total_cmp(&a_rate)).then_with(|| a.tool.cmp(&b.tool))
        });
        let near_pairs = near_pairs(self.store.equal_results(tenant, tool, days).await?);
        let loop_ends = self.store.loop_ends(tenant, days).await?;
        Ok(QualityReport { tools, near_pairs, loop_ends })
    }

    /// Makes the rollups anew from the calls of the last forty days; gives the number of trials.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`]: the rollups are as before.
    pub async fn rebuild_profiles(&self) -> Result<u64, GateError> {
        // What waits goes to the logistic layer too, which a recount does not touch.
        self.learn().await?;
        Ok(self.store.recount_trials().await?)
    }
}

fn near_pairs(equal: Vec<EqualResults>) -> Vec<NearPair> {
    let mut by_tool: BTreeMap<ToolName, NearPair> = BTreeMap::new();
    for pair in equal {
        let ((first, a), (second, b)) = (pair.first, pair.second);
        if similarity::of_arguments(&a, &b) < NEAR {
            continue;
        }
        let found = by_tool.entry(pair.tool.clone()).or_insert_with(|| NearPair {
            tool: pair.tool,
            pairs: 0,
            fields: similarity::differing_fields(&a, &b),
            example: (first, second),
        });
        found.pairs += 1;
    }
    let mut pairs: Vec<NearPair> = by_tool.into_values().collect();
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.pairs));
    pairs
}
