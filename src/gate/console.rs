//! Who is signed in to the console: kept for all replicas, and looked at with each request.

use std::time::Duration;

use super::{Gate, NoAnswer};
use crate::store::SignedIn;

impl Gate {
    /// Keeps a session of the console for so long.
    ///
    /// # Errors
    /// [`NoAnswer`]: nobody is signed in by it, or nobody knows.
    pub async fn put_console_session(&self, id: &[u8], sealed: &[u8], lasts: Duration) -> Result<(), NoAnswer> {
        Ok(self.store.put_console_session(id, sealed, lasts).await?)
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

    /// Ends a session of the console.
    ///
    /// # Errors
    /// [`NoAnswer`]: it may go on.
    pub async fn end_console_session(&self, id: &[u8]) -> Result<(), NoAnswer> {
        Ok(self.store.end_console_session(id).await?)
    }
}
