//! Whether commits succeed. A database that answers may still not be able to store anything: its disk is full, or it
//! only reads.

use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgConnection;
use tokio::time::Instant;

use super::{decode::Loaded, read::Readers};
use crate::error::StoreError;

/// For how long after a failed commit only a commit that succeeds counts: a trial write may find the little room that
/// a change does not. Later, when nobody may be asking for commits any more, a trial write is enough.
const QUIET: Duration = Duration::from_secs(5);

/// A batch that was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Changes in it.
    pub changes: usize,
    /// How long it took.
    pub took: Duration,
    /// How long its oldest change had waited when it was sent.
    pub waited: Duration,
}

/// When the last commit failed; none when one has succeeded since.
#[derive(Debug, Default)]
pub(super) struct Commits(Mutex<Option<Instant>>);

impl Commits {
    pub(super) fn succeeded(&self) {
        self.set(None);
    }

    pub(super) fn failed(&self) {
        self.set(Some(Instant::now()));
    }

    fn set(&self, failed: Option<Instant>) {
        *self.0.lock() = failed;
    }

    fn last_failed(&self) -> Option<Instant> {
        *self.0.lock()
    }

    /// Fails while commits do. When it is long since one was tried, tries a write.
    pub(super) async fn check(&self, connections: &Readers) -> Loaded<()> {
        let Some(failed) = self.last_failed() else { return Ok(()) };
        if failed.elapsed() < QUIET {
            return Err(StoreError::Unreachable("the last commit failed, and none has succeeded since".to_owned()));
        }
        connections.read(async |conn| try_write(conn).await).await?;
        // Unless another one has failed meanwhile.
        let mut last = self.0.lock();
        if *last == Some(failed) {
            *last = None;
        }
        Ok(())
    }
}

/// Takes a page of the disk and commits, and leaves nothing behind. It is one transaction, since it is one message.
async fn try_write(conn: &mut PgConnection) -> Loaded<()> {
    let write = "create temp table callgate_trial on commit drop as select 1 as n; select n from callgate_trial";
    sqlx::raw_sql(write).execute(conn).await?;
    Ok(())
}
