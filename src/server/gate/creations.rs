//! Recent creations by agents, for an agent that was restarted. They are kept in memory, so those of other replicas are
//! missing. An entry holds agent and call, and never the name of what was made: that stays where it can be forgotten.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use super::Decisions;
use callgate_core::{
    domain::{
        answer::ComparableResult,
        call::Proposal,
        creation::{Creation, CreationKey},
        ids::TenantId,
    },
    engine::{self, RecordResult},
    policy::Policy,
};

/// Creations that are remembered, of all tenants: some 5 MB.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();

/// The newest creation of each agent by each call; without its name.
#[derive(Debug)]
pub(super) struct Creations(Mutex<LruCache<(TenantId, CreationKey), Creation>>);

impl Default for Creations {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED_MAX)))
    }
}

impl Creations {
    /// Remembers the creation of a stored report.
    pub(super) fn remember_creation(&self, tenant: TenantId, recorded: &RecordResult) {
        let Some((key, creation)) = &recorded.creation else { return };
        self.0.lock().put((tenant, key.clone()), Creation { name: None, ..creation.clone() });
    }
}

impl Decisions {
    /// The agent's last creation by this very call in another session, with its name; none once it is forgotten.
    pub(super) async fn creation(&self, policy: &Policy, tenant: TenantId, proposal: &Proposal) -> Option<Creation> {
        let key = (proposal.request.agent.clone()?, proposal.fingerprint);
        let known = self.creations.0.lock().get(&(tenant, key)).cloned();
        let is_recent = |known: &Creation| engine::is_recent(policy, known, self.store.now());
        let known = known.filter(is_recent).filter(|known| known.call.session != proposal.request.session)?;
        let given = self.store.result(tenant, &known.call.session, &known.call.call_id).await.ok()??;
        let text = given.text.filter(|_| !given.is_gone)?;
        let named = ComparableResult::of(&text, &[], known.at).marks.named;
        let name = named.iter().next().map(|(_, name)| name.to_owned());
        Some(Creation { name, ..known })
    }
}
