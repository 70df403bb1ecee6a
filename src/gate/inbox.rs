//! What operators look at: questions, stored calls, sessions.

use super::{Gate, NoAnswer, SessionError};
use crate::domain::{
    ids::{CallId, SessionId, TenantId},
    inbox::{Question, SessionLine, SessionPlace, StoredCall, Wanted},
    rejection::SessionUnknown,
    time::Timestamp,
};

impl Gate {
    /// Questions to people, the newest first.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn questions(&self, tenant: TenantId, wanted: &Wanted) -> Result<Vec<Question>, NoAnswer> {
        Ok(self.store.questions(tenant, wanted).await?)
    }

    /// Stored calls since a time, of one session's call tree or of all, of one id or of any, by tree and in order.
    ///
    /// # Errors
    /// [`SessionError`] when the session is unknown or they cannot be read.
    pub async fn stored_calls(
        &self,
        tenant: TenantId,
        since: Timestamp,
        session: Option<&SessionId>,
        call_id: Option<&CallId>,
    ) -> Result<Vec<StoredCall>, SessionError> {
        let root = match session {
            Some(session) => {
                Some(self.known_root(tenant, session).await?.ok_or(SessionError::Rejected(SessionUnknown))?)
            }
            None => None,
        };
        Ok(self.store.stored_calls(tenant, since, root.as_ref(), call_id).await?)
    }

    /// The sessions whose call trees were heard of last, behind `after`.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn sessions(
        &self,
        tenant: TenantId,
        after: Option<&SessionPlace>,
        most: usize,
    ) -> Result<Vec<SessionLine>, NoAnswer> {
        Ok(self.store.sessions(tenant, after, most).await?)
    }
}
