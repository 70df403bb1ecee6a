//! Who is signed in to the console: kept for all replicas, and looked at with each request.

use std::time::Duration;

use super::{Identities, NoAnswer};
use callgate_core::domain::{
    audit::{Actor, Event, Kind},
    ids::TenantId,
};
use callgate_store::SignedIn;

/// What the audit calls it that somebody signs in to, and out of.
const CONSOLE: &str = "the console";

impl Identities {
    /// The key by which servers know the cookies that they have made.
    #[must_use]
    pub fn console_key(&self) -> &[u8] {
        self.store.console_key()
    }

    /// Keeps a session of the console for so long: whose it is, is in the audit of their tenant.
    ///
    /// # Errors
    /// [`NoAnswer`]: nobody is signed in by it, or nobody knows.
    pub async fn put_console_session(
        &self,
        id: &[u8],
        sealed: &[u8],
        lasts: Duration,
        (tenant, by): (TenantId, Actor),
    ) -> Result<(), NoAnswer> {
        let event = Event::new(Kind::SignedIn, by, CONSOLE);
        Ok(self.store.put_console_session((id, sealed, lasts), tenant, &event).await?)
    }

    /// A session of the console that holds. Where `is_active`, its holder does something now, and it holds longer.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn console_session(
        &self,
        id: &[u8],
        idle: Duration,
        is_active: bool,
    ) -> Result<Option<SignedIn>, NoAnswer> {
        let found = self.store.console_session(id, idle).await?;
        if is_active && found.as_ref().is_some_and(|found| found.is_quiet) {
            self.store.console_session_seen(id).await?;
        }
        Ok(found)
    }

    /// Ends a session of the console, for whoever has signed out of it.
    ///
    /// # Errors
    /// [`NoAnswer`]: it may go on.
    pub async fn end_console_session(&self, id: &[u8], (tenant, by): (TenantId, Actor)) -> Result<(), NoAnswer> {
        let event = Event::new(Kind::SignedOut, by, CONSOLE);
        Ok(self.store.end_console_session(id, tenant, &event).await?)
    }
}
