//! Claims and comments on approval requests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Approvals, CommandError, GateError, LOOK_EVERY, NoAnswer};
use callgate_core::domain::{
    approval_notes::{ApprovalNote, COMMENTS_MAX, find_claim},
    audit::{Actor, AuditEvent, AuditOperation},
    control::{Command, Operation, is_same_name},
    ids::{SessionId, TenantId},
    inbox::Question,
    rejection::CommandRejection,
};
use callgate_net::clock::Tick;

/// Time for which recent notes are kept without a reader. Later ones begin with the newest entry of the audit log.
const KEPT: Duration = Duration::from_secs(60);
/// Recent notes of a tenant, the newest.
const RECENT_MAX: usize = 1_000;

/// Claims, releases and comments of the last time, by one read for all watchers.
#[derive(Debug, Clone)]
pub struct RecentNotes {
    looked: Tick,
    /// Number of the newest entry of the audit log.
    pub newest: u64,
    /// Numbers of the notes with their requests, the newest first.
    pub notes: Arc<[(u64, String)]>,
}

impl Approvals {
    /// The notes of the last time, read within the last quarter of a second.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn recent_notes(&self, tenant: TenantId) -> Result<RecentNotes, NoAnswer> {
        let clock = &self.server.clock;
        let mut noted = self.decisions.open.noted.lock().await;
        noted.retain(|_, recent| clock.elapsed_since(recent.looked) < KEPT);
        let before = noted.get(&tenant);
        if let Some(recent) = before.filter(|recent| clock.elapsed_since(recent.looked) < LOOK_EVERY) {
            return Ok(recent.clone());
        }
        let looked = clock.tick();
        let (newest, new) = self.operators.noted_since(tenant, before.map(|recent| recent.newest)).await?;
        let notes = match before {
            Some(recent) if new.is_empty() => Arc::clone(&recent.notes),
            Some(recent) => new.iter().chain(recent.notes.iter()).take(RECENT_MAX).cloned().collect(),
            None => Arc::default(),
        };
        let recent = RecentNotes { looked, newest, notes };
        noted.insert(tenant, recent.clone());
        Ok(recent)
    }

    /// The claims and comments of some requests, the oldest first.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn notes(
        &self,
        tenant: TenantId,
        approval_ids: &[String],
    ) -> Result<BTreeMap<String, Vec<ApprovalNote>>, NoAnswer> {
        let mut found: BTreeMap<String, Vec<ApprovalNote>> = BTreeMap::new();
        for note in self.operators.approval_notes(tenant, approval_ids).await? {
            found.entry(note.approval_id.clone()).or_default().push(note);
        }
        Ok(found)
    }

    /// Claims an open request for an approver who may answer it, or releases their claim.
    ///
    /// # Errors
    /// [`CommandError`], also while another approver's claim holds.
    pub async fn claim(
        &self,
        tenant: TenantId,
        approval_id: &str,
        by: Actor,
        release: bool,
    ) -> Result<Question, CommandError> {
        let question = self.known(tenant, approval_id).await?;
        let kind = if release { AuditOperation::ApprovalReleased } else { AuditOperation::ApprovalClaimed };
        if release && self.holder_besides(tenant, approval_id, &by).await?.is_none() {
            return Ok(question);
        }
        if !release {
            // An approver who may deny it now may claim it.
            let denial =
                Operation::Answer { approval_id: approval_id.to_owned(), approve: false, clears: None, edited: None };
            let (session, reason) = (session_of(&question)?, Some("a claim".to_owned()));
            let command = Command { session, by: by.clone(), reason, operation: denial };
            self.decisions.may_control(tenant, &command).await?;
            self.holder_besides(tenant, approval_id, &by).await?;
        }
        self.note(tenant, &question, AuditEvent::new(kind, by.clone(), approval_id)).await?;
        // Of two claims at once, the first one holds.
        self.holder_besides(tenant, approval_id, &by).await?;
        Ok(question)
    }

    /// Comments on a request; returns it with its claims and comments, the new one last.
    ///
    /// # Errors
    /// [`CommandError`]: it has too many comments, or is unknown.
    pub async fn comment(
        &self,
        tenant: TenantId,
        approval_id: &str,
        by: Actor,
        text: &str,
    ) -> Result<(Question, Vec<ApprovalNote>), CommandError> {
        let question = self.known(tenant, approval_id).await?;
        let mut notes = self.operators.approval_notes(tenant, &[approval_id.to_owned()]).await?;
        let is_comment = |note: &&ApprovalNote| note.kind == AuditOperation::ApprovalCommented;
        if notes.iter().filter(is_comment).count() >= COMMENTS_MAX {
            return Err(GateError::Rejected(CommandRejection::TooManyComments));
        }
        let text = self.server.policy(tenant).without_secrets(text);
        let kind = AuditOperation::ApprovalCommented;
        let event = AuditEvent::new(kind, by.clone(), approval_id).because(&text);
        self.note(tenant, &question, event).await?;
        // Nothing is read from here on: a failure would tell of a stored comment that it was not stored.
        let (approval_id, at) = (approval_id.to_owned(), self.store.now());
        notes.push(ApprovalNote { kind, approval_id, by: by.name, at, text: Some(text) });
        Ok((question, notes))
    }

    /// The actor's own claim in force, as none or their name; another approver's is a rejection.
    async fn holder_besides(
        &self,
        tenant: TenantId,
        approval_id: &str,
        by: &Actor,
    ) -> Result<Option<String>, CommandError> {
        let notes = self.operators.approval_notes(tenant, &[approval_id.to_owned()]).await?;
        match find_claim(&notes, self.store.now()) {
            Some(claim) if !is_same_name(&claim.by, &by.name) => {
                Err(GateError::Rejected(CommandRejection::Claimed { by: claim.by, until: claim.until }))
            }
            claim => Ok(claim.map(|claim| claim.by)),
        }
    }

    async fn note(&self, tenant: TenantId, question: &Question, event: AuditEvent) -> Result<(), NoAnswer> {
        let event = event.with_session(&session_of(question)?);
        Ok(self.operators.note_approval(tenant, event).await?)
    }
}

pub(super) fn session_of(question: &Question) -> Result<SessionId, NoAnswer> {
    let unreadable = |_| NoAnswer::Fault("a stored session has a name that no session can have".to_owned());
    SessionId::parse("session_id", &question.session).map_err(unreadable)
}
