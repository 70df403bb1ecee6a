//! The active policy: read each second, swapped under running judgements. A judgement is made wholly by the policy that
//! was active when it began.

use std::sync::Arc;

use super::{Gate, GateError};
use crate::{
    domain::{
        ids::TenantId,
        revision::{Activation, Revision},
    },
    policy::{self, Policy, PolicyError},
};

/// What came of applying a policy.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// It is stored, and active when it was to be.
    Stored {
        /// Its hash.
        hash: String,
        /// Its activation.
        revision: Option<Revision>,
        /// What is odd about it.
        warnings: Vec<PolicyError>,
    },
    /// It is no policy: nothing was stored.
    Invalid(Vec<PolicyError>),
    /// Another revision is active than the one that was expected.
    Changed {
        /// The active one.
        revision: u64,
    },
}

/// What is to become of an applied policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// Only say what is wrong with it.
    Check,
    /// Store it.
    Store,
    /// Store it and make it the active one.
    Activate,
}

/// Who does something to policies, why, and on what condition.
#[derive(Debug, Clone, Copy)]
pub struct Author<'a> {
    /// Who.
    pub by: &'a str,
    /// Why.
    pub note: &'a str,
    /// Only when this revision is active; any, when absent.
    pub expected: Option<u64>,
}

impl Gate {
    /// The policy that judges.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Stores a policy and activates it: here at once, on every replica within two seconds. One that is active already
    /// stays so.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when the database cannot be used.
    pub async fn apply_policy(
        &self,
        tenant: TenantId,
        text: &str,
        author: &Author<'_>,
        apply: Apply,
    ) -> Result<Applied, GateError> {
        let compiled = match policy::compile(text) {
            Ok(compiled) => compiled,
            Err(errors) => return Ok(Applied::Invalid(errors)),
        };
        let (hash, warnings) = (policy::hash(text), compiled.warnings);
        if apply != Apply::Check {
            self.store.put_policy(tenant, &hash, text, author.by, author.note).await?;
        }
        if apply != Apply::Activate {
            return Ok(Applied::Stored { hash, revision: None, warnings });
        }
        let active = self.store.active_revision(tenant).await?;
        if let Some(active) = active.filter(|active| active.hash == hash) {
            self.read_policy(tenant).await?;
            return Ok(Applied::Stored { hash, revision: Some(active), warnings });
        }
        match self.activate_policy(tenant, &hash, author).await? {
            Activation::Active(revision) => Ok(Applied::Stored { hash, revision: Some(revision), warnings }),
            Activation::Changed { revision } => Ok(Applied::Changed { revision }),
            Activation::Unknown => Err(GateError::StoreUnavailable("a stored policy is gone".to_owned())),
        }
    }

    /// Activates a stored policy.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when the database cannot be used.
    pub async fn activate_policy(
        &self,
        tenant: TenantId,
        hash: &str,
        author: &Author<'_>,
    ) -> Result<Activation, GateError> {
        let activated = self.store.activate_policy(tenant, hash, author.expected, author.by, author.note).await?;
        self.read_policy(tenant).await?;
        Ok(activated)
    }

    /// Activates again the newest policy that was active before the present one and is another.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when the database cannot be used.
    pub async fn rollback_policy(&self, tenant: TenantId, author: &Author<'_>) -> Result<Activation, GateError> {
        const LOOK_BACK_MAX: usize = 500;
        let history = self.store.revisions(tenant, None, LOOK_BACK_MAX).await?;
        let Some(active) = history.first() else { return Ok(Activation::Unknown) };
        let Some(before) = history.iter().find(|revision| revision.hash != active.hash) else {
            return Ok(Activation::Unknown);
        };
        // Who rolls back means this very activation.
        let author = Author { expected: author.expected.or(Some(active.number)), ..*author };
        self.activate_policy(tenant, &before.hash, &author).await
    }

    /// Activations, the newest first.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when they cannot be read.
    pub async fn policy_revisions(
        &self,
        tenant: TenantId,
        before: Option<u64>,
        most: usize,
    ) -> Result<Vec<Revision>, GateError> {
        Ok(self.store.revisions(tenant, before, most).await?)
    }

    /// The hash and text of the one stored policy whose hash begins so; none when there is none, or more than one.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when it cannot be read.
    pub async fn stored_policy(&self, tenant: TenantId, prefix: &str) -> Result<Option<(String, String)>, GateError> {
        let mut found = self.store.policy_texts(tenant, prefix).await?;
        Ok(if found.len() == 1 { found.pop() } else { None })
    }

    /// Takes over the active policy, if it is another. One that this build cannot read is left where it is, and said
    /// once: what judged before goes on.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when it cannot be read.
    pub async fn read_policy(&self, tenant: TenantId) -> Result<(), GateError> {
        let Some(active) = self.store.active_revision(tenant).await? else { return Ok(()) };
        if self.fleet.has_read(active.number) {
            return Ok(());
        }
        let Some((_, text)) = self.stored_policy(tenant, &active.hash).await? else { return Ok(()) };
        match policy::compile(&text) {
            Ok(compiled) => {
                let version = compiled.version.clone();
                self.policy.store(Arc::new(compiled));
                tracing::info!(
                    policy.version = %version, policy.revision = active.number, policy.by = %active.by,
                    "a policy became active"
                );
            }
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                tracing::error!(
                    policy.revision = active.number, error = %errors.join("; "),
                    "the active policy cannot be read by this build; the one before goes on"
                );
            }
        }
        self.fleet.read(active.number);
        Ok(())
    }
}
