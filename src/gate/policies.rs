//! The active policy: read each second, swapped under running judgements. A judgement is made wholly by the policy that
//! was active when it began.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use arc_swap::ArcSwap;

use super::{Gate, NoAnswer, decide::TRIES_MAX, lock};
use crate::{
    domain::{
        audit::Actor,
        ids::TenantId,
        revision::{Activation, Revision},
    },
    policy::{self, Policy, PolicyError},
    telemetry,
};

/// One thing that is wrong, or doubtful, in a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblem {
    /// Line in the text, from 1, where it is known.
    pub line: Option<u64>,
    /// Path of the key: `tool_schemas.pay.effect`.
    pub path: String,
    /// All of it in one line: where, what is wrong, and what would be right.
    pub text: String,
}

impl fmt::Display for PolicyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn problems(errors: Vec<PolicyError>) -> Vec<PolicyProblem> {
    errors
        .into_iter()
        .map(|error| PolicyProblem { line: error.line, text: error.to_string(), path: error.path })
        .collect()
}

/// The policy of a text. It is compiled beside the threads that answer calls: a large one takes as long as thousands of
/// them.
///
/// # Errors
/// Everything that is wrong with it.
pub async fn compiled(text: &str) -> Result<Policy, Vec<PolicyError>> {
    let own = text.to_owned();
    let compiled = tokio::task::spawn_blocking(move || policy::compile(&own)).await;
    compiled.unwrap_or_else(|_| policy::compile(text))
}

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
        warnings: Vec<PolicyProblem>,
    },
    /// It is no policy: nothing was stored.
    Invalid(Vec<PolicyProblem>),
    /// Another revision is active than the one that was expected.
    Changed {
        /// The active one.
        revision: u64,
    },
}

/// What came of activating a stored policy.
#[derive(Debug, Clone, PartialEq)]
pub enum Activated {
    /// It is active.
    Active(Revision),
    /// This build cannot read it: another one has stored it. Nothing was activated.
    Invalid(Vec<PolicyProblem>),
    /// Another revision is active than the one that was expected.
    Changed {
        /// The active one; 0 when none is.
        revision: u64,
    },
    /// No such policy is stored, or none was active before.
    Unknown,
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
    pub by: &'a Actor,
    /// Why.
    pub note: &'a str,
    /// Only when this revision is active; any, when absent.
    pub expected: Option<u64>,
}

/// The policy that judges.
#[derive(Debug)]
pub(super) struct ActivePolicy {
    judges: ArcSwap<Policy>,
    /// The revision that was read last.
    revision: Mutex<u64>,
}

impl ActivePolicy {
    pub(super) fn new(policy: Arc<Policy>) -> Self {
        Self { judges: ArcSwap::new(policy), revision: Mutex::default() }
    }

    fn has_read(&self, revision: u64) -> bool {
        *lock(&self.revision) >= revision
    }

    /// Takes a revision over that is newer than the one before: two looks at the store may end in the other order.
    fn read(&self, revision: u64, take: impl FnOnce()) {
        let mut known = lock(&self.revision);
        if *known < revision {
            *known = revision;
            take();
        }
    }
}

impl Gate {
    /// The policy that judges. Whoever asks more than once while it answers one request may get two.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.judges.load_full()
    }

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
    ) -> Result<Applied, NoAnswer> {
        let compiled = match compiled(text).await {
            Ok(compiled) => compiled,
            Err(errors) => return Ok(Applied::Invalid(problems(errors))),
        };
        let (hash, warnings) = (policy::hash(text), problems(compiled.warnings));
        if apply != Apply::Check {
            self.store.put_policy(tenant, &hash, text, author.by, author.note).await?;
        }
        if apply != Apply::Activate {
            return Ok(Applied::Stored { hash, revision: None, warnings });
        }
        // Others may activate theirs meanwhile: the last one wins, unless this one was to follow a certain revision.
        let mut revision = 0;
        for _ in 0..TRIES_MAX {
            let active = self.store.active_revision(tenant).await?;
            revision = active.as_ref().map_or(0, |active| active.number);
            if author.expected.is_some_and(|expected| expected != revision) {
                return Ok(Applied::Changed { revision });
            }
            if let Some(active) = active.filter(|active| active.hash == hash) {
                self.take_over(tenant).await;
                return Ok(Applied::Stored { hash, revision: Some(active), warnings });
            }
            match self.activate(tenant, &hash, &Author { expected: Some(revision), ..*author }).await? {
                Activation::Active(revision) => {
                    return Ok(Applied::Stored { hash, revision: Some(revision), warnings });
                }
                Activation::Changed { .. } => {}
                Activation::Unknown => return Err(NoAnswer::Fault("a policy that was just stored is gone".to_owned())),
            }
        }
        Ok(Applied::Changed { revision })
    }

    /// Activates a stored policy, if this build can read it.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used.
    pub async fn activate_policy(
        &self,
        tenant: TenantId,
        hash: &str,
        author: &Author<'_>,
    ) -> Result<Activated, NoAnswer> {
        let Some((_, text)) = self.stored_policy(tenant, hash).await? else { return Ok(Activated::Unknown) };
        if let Err(errors) = compiled(&text).await {
            return Ok(Activated::Invalid(problems(errors)));
        }
        let mut revision = 0;
        for _ in 0..TRIES_MAX {
            match self.activate(tenant, hash, author).await? {
                Activation::Active(revision) => return Ok(Activated::Active(revision)),
                Activation::Unknown => return Ok(Activated::Unknown),
                Activation::Changed { revision } if author.expected.is_some() => {
                    return Ok(Activated::Changed { revision });
                }
                Activation::Changed { revision: active } => revision = active,
            }
        }
        Ok(Activated::Changed { revision })
    }

    async fn activate(&self, tenant: TenantId, hash: &str, author: &Author<'_>) -> Result<Activation, NoAnswer> {
        let activated = self.store.activate_policy(tenant, hash, author.expected, author.by, author.note).await?;
        self.take_over(tenant).await;
        Ok(activated)
    }

    /// What is active holds here at once. If it cannot be read, it was activated all the same, and is read within a
    /// second.
    async fn take_over(&self, tenant: TenantId) {
        let _ = self.read_policy(tenant).await;
    }

    /// Activates again the newest policy that was active before the present one and is another.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used.
    pub async fn rollback_policy(&self, tenant: TenantId, author: &Author<'_>) -> Result<Activated, NoAnswer> {
        const LOOK_BACK_MAX: usize = 500;
        let history = self.store.revisions(tenant, None, LOOK_BACK_MAX).await?;
        let Some(active) = history.first() else { return Ok(Activated::Unknown) };
        let Some(before) = history.iter().find(|revision| revision.hash != active.hash) else {
            return Ok(Activated::Unknown);
        };
        // Who rolls back means this very activation.
        let author = Author { expected: author.expected.or(Some(active.number)), ..*author };
        self.activate_policy(tenant, &before.hash, &author).await
    }

    /// Activations, the newest first.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn policy_revisions(
        &self,
        tenant: TenantId,
        before: Option<u64>,
        most: usize,
    ) -> Result<Vec<Revision>, NoAnswer> {
        Ok(self.store.revisions(tenant, before, most).await?)
    }

    /// The hash and text of the one stored policy whose hash begins so; none when there is none, or more than one.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn stored_policy(&self, tenant: TenantId, prefix: &str) -> Result<Option<(String, String)>, NoAnswer> {
        let mut found = self.store.policy_texts(tenant, prefix).await?;
        Ok(if found.len() == 1 { found.pop() } else { None })
    }

    /// Takes over the active policy, if it is newer. One that this build cannot read is left where it is, and said
    /// once: what judged before goes on. Gives what is wrong with it then.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn read_policy(&self, tenant: TenantId) -> Result<Vec<PolicyProblem>, NoAnswer> {
        let Some(active) = self.store.active_revision(tenant).await? else { return Ok(Vec::new()) };
        if self.policy.has_read(active.number) {
            return Ok(Vec::new());
        }
        let Some((_, text)) = self.stored_policy(tenant, &active.hash).await? else { return Ok(Vec::new()) };
        match compiled(&text).await {
            Ok(compiled) => {
                self.policy.read(active.number, || {
                    self.policy.judges.store(Arc::new(compiled));
                    telemetry::policy::active(&active);
                });
                Ok(Vec::new())
            }
            Err(errors) => {
                let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
                self.policy.read(active.number, || telemetry::policy::unreadable(&active, &said.join("; ")));
                Ok(problems(errors))
            }
        }
    }
}
