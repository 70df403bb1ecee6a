//! The active policy: read each second, swapped under running judgements. A judgement is made wholly by the policy that
//! was active when it began.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::{
    NoAnswer, Policies, ServerState,
    activations::{ActivationOutcome, Apply, ApplyOutcome, Author},
    decide::TRIES_MAX,
    policy_check::{PolicyProblem, problems},
    policy_hashing::with_hashing,
    rollouts::Rollouts,
};
use crate::telemetry;
use callgate_core::{
    domain::{
        ids::{DEFAULT_TENANT, TenantId},
        revision::{Activation, Revision},
    },
    policy::{self, Policy, PolicyError},
};
use callgate_net::clock::LogLimiter;
use callgate_store::{Store, StoreError};

/// The policy of a text. It is compiled beside the threads that answer calls: a large one takes as long as thousands of
/// them.
///
/// # Errors
/// Everything that is wrong with it.
pub async fn compile_policy(text: &str) -> Result<Policy, Vec<PolicyError>> {
    compiled_by(policy::compile, text).await
}

/// As [`compiled`], for a stored text, which may have keys by their names of earlier builds.
pub(super) async fn compile_stored_policy(text: &str) -> Result<Policy, Vec<PolicyError>> {
    compiled_by(policy::compile_stored, text).await
}

async fn compiled_by(
    compile: fn(&str) -> Result<Policy, Vec<PolicyError>>,
    text: &str,
) -> Result<Policy, Vec<PolicyError>> {
    let own = text.to_owned();
    #[cfg(feature = "break-invariants")]
    let own = super::broken::read(own);
    let compiled = tokio::task::spawn_blocking(move || compile(&own)).await;
    compiled.unwrap_or_else(|_| compile(text))
}

async fn stored_policy(store: &Store, tenant: TenantId, prefix: &str) -> Result<Option<(String, String)>, StoreError> {
    let mut found = store.policy_texts(tenant, prefix).await?;
    Ok(if found.len() == 1 { found.pop() } else { None })
}

/// The policies that judge, by tenant: one that this build cannot read, where none judged before, is none.
pub(super) type Judges = BTreeMap<TenantId, Option<Arc<Policy>>>;

/// The policy that judges each tenant.
#[derive(Debug)]
pub(super) struct ActivePolicy {
    pub(super) judges: ArcSwap<Judges>,
    /// Judges every tenant that has none of its own.
    pub(super) built_in: Arc<Policy>,
    /// The same for those that have their values hashed under a key.
    pub(super) keyed: ArcSwap<BTreeMap<TenantId, Arc<Policy>>>,
    /// The revisions that were read last.
    pub(super) revisions: Mutex<BTreeMap<TenantId, Read>>,
    pub(super) rollouts: Rollouts,
    /// State of the alarm, and its last log line.
    alarm: Mutex<Option<LogLimiter>>,
}

/// Longest time without a read of the active policies before the alarm: twice the delay with which a replica may learn
/// of a new one.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(4);

/// The revision that was read last, and the one that judges: an older one when that could not be read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Read {
    last: u64,
    judges: u64,
}

impl ActivePolicy {
    pub(super) fn new(policy: Arc<Policy>) -> Self {
        let judges = ArcSwap::from_pointee(Judges::from([(DEFAULT_TENANT, Some(policy))]));
        let (built_in, keyed) = (Arc::default(), ArcSwap::default());
        let (revisions, rollouts, alarm) = (Mutex::default(), Rollouts::default(), Mutex::default());
        Self { judges, built_in, keyed, revisions, rollouts, alarm }
    }

    /// The policy that judges a tenant; none when it has one that this build cannot read.
    pub(super) fn of(&self, tenant: TenantId) -> Option<Arc<Policy>> {
        match self.judges.load().get(&tenant) {
            None => Some(self.built_in(tenant)),
            Some(judges) => judges.clone(),
        }
    }

    pub(super) fn built_in(&self, tenant: TenantId) -> Arc<Policy> {
        self.keyed.load().get(&tenant).map_or_else(|| Arc::clone(&self.built_in), Arc::clone)
    }

    fn has_read(&self, tenant: TenantId, revision: u64) -> bool {
        self.revisions.lock().get(&tenant).is_some_and(|read| read.last >= revision)
    }

    /// Takes over a revision that is newer than the one before: two reads may end in the other order. Without a policy,
    /// the one before goes on, if there is one. True when it was newer.
    fn read(&self, tenant: TenantId, revision: u64, policy: Option<Arc<Policy>>) -> bool {
        let mut known = self.revisions.lock();
        let read = known.entry(tenant).or_default();
        if read.last >= revision {
            return false;
        }
        let judges = if policy.is_some() { revision } else { read.judges };
        let policy = policy.map(|policy| with_hashing(&policy, &self.built_in(tenant).hashing));
        *read = Read { last: revision, judges };
        self.judges.rcu(|judges| {
            let mut judges = Judges::clone(judges);
            match &policy {
                Some(policy) => drop(judges.insert(tenant, Some(Arc::clone(policy)))),
                None => drop(judges.entry(tenant).or_default()),
            }
            judges
        });
        true
    }

    /// The activation that judges a tenant; 0 where none was ever active.
    fn judging(&self, tenant: TenantId) -> u64 {
        self.revisions.lock().get(&tenant).map_or(0, |read| read.judges)
    }

    /// The activation that judges a tenant, and its lag behind the active one.
    pub(super) fn standing(&self, tenant: TenantId) -> (u64, u64) {
        self.revisions.lock().get(&tenant).map_or((0, 0), |read| (read.judges, read.last - read.judges))
    }

    /// Greatest lag of a tenant's judging policy behind its active one, in activations; 0 where every tenant is judged
    /// by its active one.
    pub(super) fn behind(&self) -> u64 {
        self.revisions.lock().values().map(|read| read.last - read.judges).max().unwrap_or(0)
    }
}

impl ServerState {
    /// The tenant's active policy; the built-in one while that cannot be read. Two calls during one request may return
    /// two policies.
    #[must_use]
    pub fn policy(&self, tenant: TenantId) -> Arc<Policy> {
        self.policy.of(tenant).unwrap_or_else(|| self.policy.built_in(tenant))
    }
}

impl Policies {
    /// Stores a policy and activates it: here at once, on every replica within two seconds. One that is active already
    /// stays so.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used.
    pub async fn apply_policy(
        &self,
        tenant: TenantId,
        text: &str,
        author: &Author<'_>,
        apply: Apply,
    ) -> Result<ApplyOutcome, NoAnswer> {
        let compiled = match compile_policy(text).await {
            Ok(compiled) => compiled,
            Err(errors) => return Ok(ApplyOutcome::Invalid(problems(errors))),
        };
        let (hash, warnings) = (policy::hash(text), problems(compiled.warnings));
        if apply != Apply::Check {
            self.store.put_policy(tenant, &hash, text, author.by, author.note).await?;
        }
        if apply != Apply::Activate {
            return Ok(ApplyOutcome::Stored { hash, revision: None, warnings });
        }
        // Others may activate theirs meanwhile: the last one wins, unless this one was to follow a certain revision.
        let mut revision = 0;
        for _ in 0..TRIES_MAX {
            let active = self.store.active_revision(tenant).await?;
            revision = active.as_ref().map_or(0, |active| active.number);
            if author.expected.is_some_and(|expected| expected != revision) {
                return Ok(ApplyOutcome::Changed { revision });
            }
            if let Some(active) = active.filter(|active| active.hash == hash) {
                self.take_over(tenant).await;
                return Ok(ApplyOutcome::Stored { hash, revision: Some(active), warnings });
            }
            match self.activate(tenant, &hash, &Author { expected: Some(revision), ..*author }, None).await? {
                Activation::Active(revision) => {
                    return Ok(ApplyOutcome::Stored { hash, revision: Some(revision), warnings });
                }
                Activation::Changed { .. } => {}
                Activation::Unknown => return Err(NoAnswer::Fault("a policy that was just stored is gone".to_owned())),
            }
        }
        Ok(ApplyOutcome::Changed { revision })
    }

    /// Activates a stored policy, if this build can read it. It ends the running rollout.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used.
    pub async fn activate_policy(
        &self,
        tenant: TenantId,
        hash: &str,
        author: &Author<'_>,
    ) -> Result<ActivationOutcome, NoAnswer> {
        self.activate_stored(tenant, hash, author, None).await
    }

    /// As [`Policies::activate_policy`], only while the rollout is at the step `promotes`.
    pub(super) async fn activate_stored(
        &self,
        tenant: TenantId,
        hash: &str,
        author: &Author<'_>,
        promotes: Option<u64>,
    ) -> Result<ActivationOutcome, NoAnswer> {
        let Some((_, text)) = stored_policy(&self.store, tenant, hash).await? else {
            return Ok(ActivationOutcome::Unknown);
        };
        if let Err(errors) = compile_stored_policy(&text).await {
            return Ok(ActivationOutcome::Invalid(problems(errors)));
        }
        let mut revision = 0;
        for _ in 0..TRIES_MAX {
            match self.activate(tenant, hash, author, promotes).await? {
                Activation::Active(revision) => return Ok(ActivationOutcome::Active(revision)),
                Activation::Unknown => return Ok(ActivationOutcome::Unknown),
                Activation::Changed { revision } if author.expected.or(promotes).is_some() => {
                    return Ok(ActivationOutcome::Changed { revision });
                }
                Activation::Changed { revision: active } => revision = active,
            }
        }
        Ok(ActivationOutcome::Changed { revision })
    }

    async fn activate(
        &self,
        tenant: TenantId,
        hash: &str,
        author: &Author<'_>,
        promotes: Option<u64>,
    ) -> Result<Activation, NoAnswer> {
        let expected = (author.expected, promotes);
        let activated = self.store.activate_policy(tenant, hash, expected, author.by, author.note).await?;
        self.take_over(tenant).await;
        Ok(activated)
    }

    /// Applies the active policy here at once. After a failed read it is active all the same, and read within a second.
    async fn take_over(&self, tenant: TenantId) {
        let _ = self.read_policy(tenant).await;
    }

    /// Activates again the newest policy that was active before the present one and is another.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used.
    pub async fn rollback_policy(&self, tenant: TenantId, author: &Author<'_>) -> Result<ActivationOutcome, NoAnswer> {
        const LOOK_BACK_MAX: usize = 500;
        let history = self.store.revisions(tenant, None, LOOK_BACK_MAX).await?;
        let Some(active) = history.first() else { return Ok(ActivationOutcome::Unknown) };
        let Some(before) = history.iter().find(|revision| revision.hash != active.hash) else {
            return Ok(ActivationOutcome::Unknown);
        };
        // A rollback is meant for this very activation.
        let author = Author { expected: author.expected.or(Some(active.number)), ..*author };
        self.activate_policy(tenant, &before.hash, &author).await
    }

    /// The hash and text of the one stored policy whose hash begins so; none when there is none, or more than one.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn stored_policy(&self, tenant: TenantId, prefix: &str) -> Result<Option<(String, String)>, NoAnswer> {
        Ok(stored_policy(&self.operators, tenant, prefix).await?)
    }

    /// Reports the tenants that their active policy does not judge: as a metric, and repeatedly in the log, also while
    /// this is unknown. To be called each second, whether or not the active ones could be read. True while the alarm is
    /// on.
    pub fn watch_policies(&self) -> bool {
        let (behind, unconfirmed) = (self.server.policy.behind(), self.server.tenants.age(&self.server.clock));
        self.server.metrics.policies(behind, unconfirmed, self.server.policy.judging(DEFAULT_TENANT));
        let mut alarm = self.server.policy.alarm.lock();
        if behind == 0 && unconfirmed <= UNCONFIRMED_MAX {
            if alarm.take().is_some() {
                telemetry::policy::caught_up();
            }
            return false;
        }
        if alarm.get_or_insert_default().count_event(&self.server.clock).is_some() {
            telemetry::policy::behind(behind, unconfirmed);
        }
        true
    }

    /// Applies the active policy, if it is newer. One that this build cannot read is skipped, and logged once: the
    /// former one goes on judging. Returns its problems then.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn read_policy(&self, tenant: TenantId) -> Result<Vec<PolicyProblem>, NoAnswer> {
        // Read before the activation that ends it: its part never goes back to an older version between the two.
        let rollout = self.store.rollout(tenant).await?;
        let problems = match self.store.active_revision(tenant).await? {
            Some(active) => self.follow_policy(&self.store, tenant, &active).await?,
            None => Vec::new(),
        };
        self.follow_rollout(&self.store, tenant, rollout).await?;
        Ok(problems)
    }

    /// As [`Policies::read_policy`], for an activation that was read.
    pub(super) async fn follow_policy(
        &self,
        store: &Store,
        tenant: TenantId,
        active: &Revision,
    ) -> Result<Vec<PolicyProblem>, NoAnswer> {
        if self.server.policy.has_read(tenant, active.number) {
            return Ok(Vec::new());
        }
        let Some((_, text)) = stored_policy(store, tenant, &active.hash).await? else { return Ok(Vec::new()) };
        match compile_stored_policy(&text).await {
            Ok(compiled) => {
                if self.server.policy.read(tenant, active.number, Some(Arc::new(compiled))) {
                    telemetry::policy::active(tenant, active);
                }
                Ok(Vec::new())
            }
            Err(errors) => {
                if self.server.policy.read(tenant, active.number, None) {
                    let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
                    telemetry::policy::unreadable(tenant, active, &said.join("; "));
                }
                Ok(problems(errors))
            }
        }
    }
}
