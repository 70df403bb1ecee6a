//! Health of tools on this replica: its own observations at once, those of other replicas a second or two later. Only
//! the half-open probe depends on it: of all replicas one call probes a tool after its cooldown, and claims that in the
//! store before it is let through.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
};

use lru::LruCache;
use parking_lot::Mutex;

use super::{Decisions, NoAnswer};
use callgate_core::{
    domain::{
        call::{Permit, Proposal, Request},
        failure::FailureKind,
        health::{Cooldown, Health, HealthObservations, HealthRow, Observation, PROBE_CALL_MS},
        ids::{DEFAULT_TENANT, TenantId, ToolName},
        pacing::{Caller, Pacing},
        time::Timestamp,
    },
    policy::Policy,
    rules::tool_circuit_breaker,
};

/// Overlap of two reads of the others' rows, in milliseconds: rows are committed out of order.
const OVERLAP_MS: i64 = 5_000;
/// Tools whose health is kept in memory; the least recently called one is evicted.
const TOOLS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

type Key = (TenantId, ToolName);

/// Health of the tools that this replica knows.
#[derive(Debug)]
pub(super) struct ToolHealth {
    tools: Mutex<LruCache<Key, HealthEntry>>,
    /// Claims that no call used, each with its end: to be given back.
    unused: Mutex<Vec<(Key, Timestamp)>>,
    /// Change time of the newest row that was read.
    looked_at: Mutex<Option<Timestamp>>,
}

impl Default for ToolHealth {
    fn default() -> Self {
        let tools = Mutex::new(LruCache::new(TOOLS_MAX));
        Self { tools, unused: Mutex::default(), looked_at: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct HealthEntry {
    health: Health,
    pacing: Pacing,
    /// Observations that are not stored yet.
    untold: Option<HealthObservations>,
}

/// The claim of a tool's half-open probe. Dropped without being kept, any call may take it again: after a conflict, a
/// refusal, or a caller that left.
#[derive(Debug)]
pub(super) struct Claim {
    tools: Arc<ToolHealth>,
    key: Key,
    until: Timestamp,
    kept: bool,
}

impl Claim {
    /// Its call was let through.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            self.tools.probing(&self.key, None);
            self.tools.unused.lock().push((self.key.clone(), self.until));
        }
    }
}

/// A call's turn, while its tool is paced. Dropped without a decision to run it or to wait, the turn is given back.
#[derive(Debug)]
pub(super) struct PacedCall {
    tools: Arc<ToolHealth>,
    key: Key,
    caller: Caller,
    at: Timestamp,
    is_used: bool,
}

impl PacedCall {
    /// The time from which the call may run.
    pub(super) const fn at(&self) -> Timestamp {
        self.at
    }

    /// The call runs.
    pub(super) fn run(mut self) {
        self.is_used = true;
        self.tools.pace(&self.key, |pacing| pacing.end_turn(&self.caller));
    }

    /// The call waits for its turn.
    pub(super) fn keep(mut self) {
        self.is_used = true;
    }
}

impl Drop for PacedCall {
    fn drop(&mut self) {
        if !self.is_used {
            self.tools.pace(&self.key, |pacing| pacing.give_back_turn(&self.caller));
        }
    }
}

impl ToolHealth {
    fn pace<T>(&self, key: &Key, change: impl FnOnce(&mut Pacing) -> T) -> Option<T> {
        self.tools.lock().peek_mut(key).map(|known| change(&mut known.pacing))
    }

    pub(super) fn health(&self, tenant: TenantId, tool: &ToolName) -> Health {
        let mut tools = self.tools.lock();
        tools.get(&(tenant, tool.clone())).map(|known| known.health.clone()).unwrap_or_default()
    }

    /// The open circuit breakers among the tools, each once, by name.
    pub(super) fn cooldowns(
        &self,
        tenant: TenantId,
        tools: impl Iterator<Item = ToolName>,
        now: Timestamp,
    ) -> Vec<(ToolName, Cooldown)> {
        let tools: BTreeSet<ToolName> = tools.collect();
        let cooling = |tool: ToolName| Some((self.health(tenant, &tool).cooldown(now)?, tool));
        tools.into_iter().filter_map(cooling).map(|(cooldown, tool)| (tool, cooldown)).collect()
    }

    /// Count of tools with an open circuit breaker, by tenant.
    pub(super) fn cooling(&self, now: Timestamp) -> BTreeMap<TenantId, u64> {
        let mut counts = BTreeMap::new();
        for ((tenant, _), known) in self.tools.lock().iter() {
            if known.health.cooldown.is_some_and(|cooldown| cooldown.until > now) {
                *counts.entry(*tenant).or_default() += 1;
            }
        }
        counts
    }

    /// A new permit was stored.
    pub(super) fn record_permit(&self, policy: &Policy, request: &Request, permit: &Permit) {
        let allowance = policy.retry.allowance;
        self.update(request.tenant, &request.tool, |HealthEntry { health, pacing, .. }, seen| {
            health.record_call(&allowance, permit.at);
            pacing.record_call(permit.at);
            seen.retries -= allowance.share;
        });
    }

    /// A report was stored.
    pub(super) fn record_report(
        &self,
        policy: &Policy,
        (tenant, tool): (TenantId, &ToolName),
        observation: &Observation,
    ) {
        let allowance = policy.retry.allowance;
        self.update(tenant, tool, |HealthEntry { health, pacing, .. }, seen| {
            health.record_report(observation, &allowance);
            match (observation.failure, observation.cooldown_ms, health.cooldown) {
                (Some(FailureKind::RateLimited), Some(_), Some(open)) => {
                    pacing.record_limited(observation.at, observation.sent_at, open.until);
                }
                (None, ..) => pacing.record_accepted(observation.at),
                (Some(kind), ..) if !kind.may_pass() => pacing.record_accepted(observation.at),
                _ => {}
            }
            match observation.failure {
                None => {
                    (seen.failures, seen.failing_since) = (0, None);
                    seen.succeeded_at = seen.succeeded_at.max(Some(observation.sent_at));
                    seen.cooldown = seen.cooldown.filter(|_| health.cooldown.is_some());
                }
                Some(kind) if kind.may_pass() => {
                    seen.failures += 1;
                    seen.failing_since = seen.failing_since.or(Some(observation.at));
                }
                Some(_) => {}
            }
            if observation.cooldown_ms.is_some() {
                seen.cooldown = health.cooldown;
            }
            seen.retries += f64::from(u8::from(observation.retry_told));
        });
    }

    fn probing(&self, key: &Key, until: Option<Timestamp>) {
        if let Some(known) = self.tools.lock().get_mut(key) {
            known.health.set_probe_lease(until);
        }
    }

    fn update(
        &self,
        tenant: TenantId,
        tool: &ToolName,
        change: impl FnOnce(&mut HealthEntry, &mut HealthObservations),
    ) {
        let mut tools = self.tools.lock();
        let known = tools.get_or_insert_mut((tenant, tool.clone()), HealthEntry::default);
        let mut seen = known.untold.take().unwrap_or_else(|| HealthObservations {
            tenant,
            tool: tool.clone(),
            succeeded_at: None,
            failures: 0,
            failing_since: None,
            cooldown: None,
            retries: 0.0,
        });
        change(known, &mut seen);
        known.untold = Some(seen);
    }

    fn take_untold(&self) -> Vec<HealthObservations> {
        self.tools.lock().iter_mut().filter_map(|(_, known)| known.untold.take()).collect()
    }

    /// Returns unsent observations to be sent with the next ones: newer facts stand, amounts add up.
    fn put_back(&self, untold: Vec<HealthObservations>) {
        for before in untold {
            self.update(before.tenant, &before.tool.clone(), |_, seen| {
                seen.retries += before.retries;
                seen.cooldown = seen.cooldown.or(before.cooldown.filter(|_| seen.succeeded_at.is_none()));
                if seen.succeeded_at.is_none() {
                    seen.succeeded_at = before.succeeded_at;
                    seen.failures += before.failures;
                    seen.failing_since = before.failing_since.or(seen.failing_since);
                }
            });
        }
    }

    fn take_over(&self, rows: &[HealthRow], now: Timestamp) {
        let mut tools = self.tools.lock();
        for row in rows {
            let known = tools.get_or_insert_mut((row.tenant, row.tool.clone()), HealthEntry::default);
            // Newer observations are stored first, and come back with the row.
            if known.untold.is_none() {
                known.health.merge_row(row);
                // A limit that another replica found ends this one's share of the rate, too; its own changes nothing.
                if let Some(open) =
                    row.cooldown.filter(|open| open.failure == FailureKind::RateLimited && now < open.until)
                {
                    known.pacing.record_limited(open.since, open.since, open.until);
                }
            }
        }
    }
}

impl Decisions {
    /// Claims the tool's probe, when the cooldown in `health` is over and no probe runs. When another replica was
    /// first, `health` says so from then on.
    pub(super) async fn claim_probe(
        &self,
        tenant: TenantId,
        tool: &ToolName,
        health: &mut Health,
    ) -> Result<Option<Claim>, NoAnswer> {
        let now = self.store.now();
        if !health.is_to_be_probed(now) {
            return Ok(None);
        }
        self.give_back_claims().await;
        let (key, until) = ((tenant, tool.clone()), now.plus_ms(PROBE_CALL_MS));
        self.tools.probing(&key, Some(until));
        let claim = Claim { tools: Arc::clone(&self.tools), key, until, kept: false };
        if self.store.claim_probe(tenant, tool, until).await? {
            return Ok(Some(claim));
        }
        claim.keep();
        health.set_probe_lease(Some(until));
        Ok(None)
    }

    /// The turn of a call, while its tool is paced.
    pub(super) fn take_turn(&self, policy: &Policy, proposal: &Proposal) -> Option<PacedCall> {
        if !policy.rules.get::<tool_circuit_breaker::Params>().pacing {
            return None;
        }
        let Request { tenant, tool, session, .. } = &proposal.request;
        let (key, caller) = ((*tenant, tool.clone()), (session.clone(), proposal.fingerprint));
        let now = self.store.now();
        let turn = self.tools.pace(&key, |pacing| pacing.take_turn(&caller, now))??;
        Some(PacedCall { tools: Arc::clone(&self.tools), key, caller, at: turn, is_used: false })
    }

    /// Releases unused claims. A claim that cannot be released expires by itself.
    pub(super) async fn give_back_claims(&self) {
        let unused = std::mem::take(&mut *self.tools.unused.lock());
        for ((tenant, tool), until) in unused {
            if let Err(error) = self.store.release_probe(tenant, &tool, until).await {
                tracing::debug!(%error, %tool, "a claim was not given back; it runs out by itself");
            }
        }
    }

    /// Shares the health of tools with the other replicas, and applies theirs.
    ///
    /// # Errors
    /// [`NoAnswer`]: the observations are shared the next time.
    pub async fn share_health(&self) -> Result<(), NoAnswer> {
        self.give_back_claims().await;
        let untold = self.tools.take_untold();
        if !untold.is_empty() {
            match self.store.add_health(&untold, self.server.policy(DEFAULT_TENANT).retry.allowance.per_minute).await {
                Ok(rows) => self.tools.take_over(&rows, self.store.now()),
                Err(error) => {
                    self.tools.put_back(untold);
                    self.server.minute_metrics.record_query(self.store.now(), None);
                    return Err(error.into());
                }
            }
        }
        let since = *self.tools.looked_at.lock();
        let since = since.map_or(Timestamp::default(), |at| Timestamp::from_millis(at.as_millis() - OVERLAP_MS));
        let asked = self.server.clock.tick();
        let rows = self.store.changed_health(since).await;
        self.server
            .minute_metrics
            .record_query(self.store.now(), rows.is_ok().then(|| self.server.clock.elapsed_since(asked)));
        let rows = rows?;
        self.tools.take_over(&rows, self.store.now());
        if let Some(newest) = rows.iter().map(|row| row.changed_at).max() {
            *self.tools.looked_at.lock() = Some(newest);
        }
        Ok(())
    }
}
