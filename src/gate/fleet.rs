//! What one session learns helps all: how tools fare, and what retries came to. Replicas tell each other through the
//! store, a second or two late; nothing that must hold depends on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;

use super::{Gate, GateError};
use crate::{
    domain::{
        call::{Permit, Proposal},
        halt::Halt,
        health::{Cooldown, Health, HealthRow, PROBE_CALL_MS, Seen},
        ids::{TenantId, ToolName},
        profile::{ResidualState, Trial},
        time::Timestamp,
    },
    engine::Lesson,
    policy::Policy,
    retry::{estimate::Estimate, layer::Layer, profiles::Profiles, self_correction::SelfCorrections},
    store::Counted,
};

/// How far back a look at the others' rows overlaps the last one, in milliseconds: rows are committed out of order.
const OVERLAP_MS: i64 = 5_000;
/// Tools whose health is kept in memory; the one that nobody called for longest is forgotten first.
const TOOLS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// Rounds of counting without a pause.
const ROUNDS_MAX: usize = 50;

type Key = (TenantId, ToolName);

/// What this replica knows of the fleet.
#[derive(Debug)]
pub(super) struct Fleet {
    tools: Mutex<LruCache<Key, Known>>,
    /// By tenant, with the rollups' version.
    learned: Mutex<BTreeMap<TenantId, (u64, Arc<Profiles>)>>,
    looked_at: Mutex<Option<Timestamp>>,
    halts: Mutex<BTreeMap<TenantId, Arc<[Halt]>>>,
    /// The revision of the active policy that was read last.
    revision: Mutex<u64>,
}

impl Default for Fleet {
    fn default() -> Self {
        let tools = Mutex::new(LruCache::new(TOOLS_MAX));
        Self {
            tools,
            learned: Mutex::default(),
            looked_at: Mutex::default(),
            halts: Mutex::default(),
            revision: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    health: Health,
    /// What was not told yet.
    untold: Option<Seen>,
}

/// No lock here is held over a panic: what it guards is whole whatever happened.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    pub(super) fn health(&self, tenant: TenantId, tool: &ToolName) -> Health {
        let mut tools = lock(&self.tools);
        tools.get(&(tenant, tool.clone())).map(|known| known.health.clone()).unwrap_or_default()
    }

    pub(super) fn has_read(&self, revision: u64) -> bool {
        *lock(&self.revision) >= revision
    }

    /// Takes a revision over that is newer than the one before: two looks at the store may end in the other order.
    pub(super) fn read(&self, revision: u64, take: impl FnOnce()) {
        let mut known = lock(&self.revision);
        if *known < revision {
            *known = revision;
            take();
        }
    }

    /// What is halted.
    pub(super) fn halts(&self, tenant: TenantId) -> Arc<[Halt]> {
        lock(&self.halts).get(&tenant).cloned().unwrap_or_default()
    }

    pub(super) fn set_halts(&self, halts: BTreeMap<TenantId, Vec<Halt>>) {
        *lock(&self.halts) = halts.into_iter().map(|(tenant, halts)| (tenant, halts.into())).collect();
    }

    /// Which of the tools everybody leaves alone, each once, by name.
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

    fn update(&self, tenant: TenantId, tool: &ToolName, change: impl FnOnce(&mut Health, &mut Seen)) {
        let mut tools = lock(&self.tools);
        let known = tools.get_or_insert_mut((tenant, tool.clone()), Known::default);
        let seen = known.untold.get_or_insert_with(|| Seen {
            tenant,
            tool: tool.clone(),
            succeeded_at: None,
            failures: 0,
            failing_since: None,
            cooldown: None,
            retries: 0.0,
        });
        change(&mut known.health, seen);
    }

    fn take_untold(&self) -> Vec<Seen> {
        lock(&self.tools).iter_mut().filter_map(|(_, known)| known.untold.take()).collect()
    }

    /// What could not be told is told with the next: newer facts stand, amounts add up.
    fn put_back(&self, untold: Vec<Seen>) {
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

    fn take_over(&self, rows: &[HealthRow]) {
        let mut tools = lock(&self.tools);
        for row in rows {
            let known = tools.get_or_insert_mut((row.tenant, row.tool.clone()), Known::default);
            // What was seen since is told first, and comes back with the row.
            if known.untold.is_none() {
                known.health.shared(row);
            }
        }
    }
}

impl Gate {
    /// How the proposed call's tool fares, and whether this call is the one that finds out after a cooldown.
    pub(super) async fn health_to_judge_by(&self, proposal: &Proposal) -> (Health, bool) {
        let (tenant, tool) = (proposal.request.tenant, &proposal.request.tool);
        let mut health = self.fleet.health(tenant, tool);
        let now = self.store.now();
        if !health.is_to_be_probed(now) {
            return (health, false);
        }
        // A store that does not answer will refuse the permit anyway.
        let claimed = self.store.claim_probe(tenant, tool).await.unwrap_or(false);
        let until = Some(now.plus_ms(PROBE_CALL_MS));
        self.fleet.update(tenant, tool, |health, _| health.probed(until));
        if !claimed {
            health.probed(until);
        }
        (health, claimed)
    }

    /// A proposal was decided on; `permit` is the new permit, if there is one.
    pub(super) async fn permitted(&self, policy: &Policy, proposal: &Proposal, permit: Option<&Permit>, claimed: bool) {
        let (tenant, tool) = (proposal.request.tenant, &proposal.request.tool);
        let allowance = policy.retry.allowance;
        match permit {
            Some(permit) => self.fleet.update(tenant, tool, |health, seen| {
                health.called(&allowance, permit.at);
                seen.retries -= allowance.share;
            }),
            None if claimed => {
                self.fleet.update(tenant, tool, |health, _| health.probed(None));
                // Else it runs out by itself.
                let _ = self.store.release_probe(tenant, tool).await;
            }
            None => {}
        }
    }

    /// A report was stored.
    pub(super) fn reported(&self, policy: &Policy, tenant: TenantId, lesson: Option<&Lesson>) {
        let allowance = policy.retry.allowance;
        let Some(lesson) = lesson else { return };
        let sign = &lesson.sign;
        self.fleet.update(tenant, &lesson.tool, |health, seen| {
            health.reported(sign, &allowance);
            match sign.failure {
                None => {
                    (seen.succeeded_at, seen.failures, seen.failing_since) = (Some(sign.at), 0, None);
                    seen.cooldown = None;
                }
                Some(kind) if kind.may_pass() => {
                    seen.failures += 1;
                    seen.failing_since = seen.failing_since.or(Some(sign.at));
                }
                Some(_) => {}
            }
            if sign.cooldown_ms.is_some() {
                seen.cooldown = health.cooldown;
            }
            seen.retries += f64::from(u8::from(sign.retry_told));
        });
    }

    /// Tells the other replicas how tools fare, and takes over what they have told.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`]: what was seen is told the next time.
    pub async fn share_health(&self) -> Result<(), GateError> {
        let untold = self.fleet.take_untold();
        if !untold.is_empty() {
            match self.store.add_health(&untold, self.policy().retry.allowance.per_minute).await {
                Ok(rows) => self.fleet.take_over(&rows),
                Err(error) => {
                    self.fleet.put_back(untold);
                    return Err(error.into());
                }
            }
        }
        let since = *lock(&self.fleet.looked_at);
        let since = since.map_or(Timestamp::default(), |at| Timestamp::from_millis(at.as_millis() - OVERLAP_MS));
        let rows = self.store.changed_health(since).await?;
        self.fleet.take_over(&rows);
        if let Some(newest) = rows.iter().map(|row| row.changed_at).max() {
            *lock(&self.fleet.looked_at) = Some(newest);
        }
        Ok(())
    }

    /// Counts what follow-ups came to, if no other replica does, and takes over what was counted.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`]: nothing is lost; it is counted the next time.
    pub async fn learn(&self) -> Result<(), GateError> {
        for _ in 0..ROUNDS_MAX {
            let counted: Counted = self.store.count_trials(&learn).await?;
            if !counted.is_behind() {
                break;
            }
        }
        let version = self.store.profiles_version().await?;
        let is_old = |(tenant, (known, _)): (&TenantId, &(u64, _))| (*known != version).then_some(*tenant);
        let old: Vec<TenantId> = lock(&self.fleet.learned).iter().filter_map(is_old).collect();
        for tenant in old {
            self.load_profiles(tenant, version).await?;
        }
        Ok(())
    }

    /// Takes over what refusals for arguments came to.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`]: what was known before stands.
    pub async fn learn_self_corrections(&self) -> Result<(), GateError> {
        let tenants: Vec<TenantId> = lock(&self.fleet.learned).keys().copied().collect();
        for tenant in tenants {
            let read = SelfCorrections::restore(self.store.self_corrections(tenant).await?);
            if let Some((_, known)) = lock(&self.fleet.learned).get_mut(&tenant)
                && known.self_corrections != read
            {
                Arc::make_mut(known).self_corrections = read;
            }
        }
        Ok(())
    }

    /// What was learned of a tenant's retries. While it cannot be read, the priors speak.
    pub(super) async fn profiles(&self, tenant: TenantId) -> Arc<Profiles> {
        self.read_profiles(tenant).await.unwrap_or_default()
    }

    pub(super) async fn read_profiles(&self, tenant: TenantId) -> Result<Arc<Profiles>, GateError> {
        let known = lock(&self.fleet.learned).get(&tenant).map(|(_, profiles)| Arc::clone(profiles));
        match known {
            Some(profiles) => Ok(profiles),
            None => self.load_profiles(tenant, 0).await,
        }
    }

    async fn load_profiles(&self, tenant: TenantId, version: u64) -> Result<Arc<Profiles>, GateError> {
        let (counts, residuals) = self.store.profiles(tenant).await?;
        let known = lock(&self.fleet.learned).get(&tenant).map(|(_, profiles)| profiles.self_corrections.clone());
        // They have a pace of their own, since they are counted over days each time.
        let self_corrections = match known {
            Some(known) => known,
            None => SelfCorrections::restore(self.store.self_corrections(tenant).await?),
        };
        let (estimate, layer) = (Estimate::restore(&counts), Layer::restore(&residuals));
        let profiles = Arc::new(Profiles { estimate, layer, self_corrections });
        lock(&self.fleet.learned).insert(tenant, (version, Arc::clone(&profiles)));
        Ok(profiles)
    }
}

/// Puts trials on top of stored residuals.
fn learn(stored: Vec<ResidualState>, trials: &[Trial]) -> Vec<ResidualState> {
    let mut layer = Layer::restore(&stored);
    trials.iter().for_each(|trial| layer.learn(trial));
    layer.kinds().map(|(kind, residual)| residual.state(kind)).collect()
}
