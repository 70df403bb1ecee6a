//! Tables of operators in memory: policies with their activations, claims and comments, the one tenant.

use std::collections::BTreeMap;

use super::{MemoryStore, questions};
use crate::decision_store::DecisionStore as _;
use callgate_core::domain::{
    approval_notes::ApprovalNote,
    audit::{Actor, AuditEvent},
    ids::{DEFAULT_TENANT, SessionId, TenantId},
    revision::{Activation, Revision},
    tenant::{DEFAULT_TENANT_NAME, Quotas, Tenant, TenantState, TenantUsage, Terms},
    tree::{StoredPermit, StoredYes},
};

/// Policies of one tenant.
#[derive(Debug, Default)]
pub(super) struct StoredPolicies {
    texts: BTreeMap<String, String>,
    /// Activations, of which the last one is active.
    revisions: Vec<Revision>,
}

impl MemoryStore {
    /// Stores a policy's text, once.
    pub(crate) fn put_policy(&self, tenant: TenantId, hash: &str, text: &str) {
        let mut stored = self.stored.lock();
        stored.policies.entry(tenant).or_default().texts.entry(hash.to_owned()).or_insert_with(|| text.to_owned());
    }

    /// Activates a stored policy; `expected` is the revision that has to be active.
    pub(crate) fn activate_policy(
        &self,
        tenant: TenantId,
        hash: &str,
        expected: Option<u64>,
        by: &Actor,
        note: &str,
    ) -> Activation {
        let mut stored = self.stored.lock();
        let policies = stored.policies.entry(tenant).or_default();
        let active = policies.revisions.last().map_or(0, |active| active.number);
        if !policies.texts.contains_key(hash) {
            return Activation::Unknown;
        }
        if expected.is_some_and(|expected| expected != active) {
            return Activation::Changed { revision: active };
        }
        let (hash, by, note) = (hash.to_owned(), by.name.clone(), note.to_owned());
        let revision = Revision { number: active + 1, hash, at: self.now(), by, note };
        policies.revisions.push(revision.clone());
        Activation::Active(revision)
    }

    /// Activations, newest first: those before a revision, at most `max`.
    pub(crate) fn revisions(&self, tenant: TenantId, before: Option<u64>, max: usize) -> Vec<Revision> {
        let stored = self.stored.lock();
        let known = stored.policies.get(&tenant).map_or(&[][..], |policies| &policies.revisions);
        let is_before = |revision: &&Revision| before.is_none_or(|before| revision.number < before);
        known.iter().rev().filter(is_before).take(max).cloned().collect()
    }

    /// Hash and text of the stored policies with this hash prefix, at most two.
    pub(crate) fn policy_texts(&self, tenant: TenantId, prefix: &str) -> Vec<(String, String)> {
        let stored = self.stored.lock();
        let known = stored.policies.get(&tenant).into_iter().flat_map(|policies| &policies.texts);
        let found = known.filter(|(hash, _)| hash.starts_with(prefix)).take(2);
        found.map(|(hash, text)| (hash.clone(), text.clone())).collect()
    }

    /// The tenant `default`, without quotas or retention periods.
    pub(crate) fn default_tenant(&self) -> Tenant {
        Tenant {
            id: DEFAULT_TENANT,
            name: DEFAULT_TENANT_NAME.to_owned(),
            state: TenantState::Active,
            since: (self.started_at, "serve".to_owned(), String::new()),
            quotas: Quotas::default(),
            used: TenantUsage::default(),
            terms: Terms::default(),
            mark: None,
            created_at: self.started_at,
        }
    }

    /// The claims and comments of some approval requests, the oldest first.
    pub(crate) fn approval_notes(&self, tenant: TenantId, approval_ids: &[String]) -> Vec<ApprovalNote> {
        let stored = self.stored.lock();
        let known = stored.questions.get(&tenant).map_or(&[][..], |known| &known.notes);
        known.iter().filter(|note| approval_ids.contains(&note.approval_id)).cloned().collect()
    }

    /// Stores a claim, its release or a comment.
    pub(crate) fn note_approval(&self, tenant: TenantId, event: AuditEvent) {
        let AuditEvent { kind, by, what: approval_id, why: text, .. } = event;
        let note = ApprovalNote { kind, approval_id, by: by.name, at: self.now(), text };
        self.stored.lock().questions.entry(tenant).or_default().notes.push(note);
    }

    /// The edits of a session, and the permits of their arguments since; both in order.
    pub(crate) fn chosen_since(&self, tenant: TenantId, session: &SessionId) -> (Vec<StoredYes>, Vec<StoredPermit>) {
        let stored = self.stored.lock();
        stored.tenants.get(&tenant).map(|events| questions::chosen_since(events, session)).unwrap_or_default()
    }
}
