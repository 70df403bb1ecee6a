//! Commit health: a responsive database may be unable to store, with a full disk or in read-only mode.

use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgConnection;
use tokio::time::Instant;

use super::{decode::LoadedRow, read::Readers};
use crate::error::StoreError;

/// Time after a failed commit during which only a successful commit counts: a trial write may fit where a change does
/// not. Later, without traffic, a trial write suffices.
const QUIET: Duration = Duration::from_secs(5);

/// A committed batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Number of changes.
    pub changes: usize,
    /// Duration.
    pub took: Duration,
    /// Queue time of its oldest change.
    pub waited: Duration,
}

/// Time of the last failed commit; none after a success.
#[derive(Debug, Default)]
pub(super) struct Commits(Mutex<Option<Instant>>);

impl Commits {
    pub(super) fn record_success(&self) {
        self.set(None);
    }

    pub(super) fn record_failure(&self) {
        self.set(Some(Instant::now()));
    }

    fn set(&self, failed: Option<Instant>) {
        *self.0.lock() = failed;
    }

    fn last_failure(&self) -> Option<Instant> {
        *self.0.lock()
    }

    /// Fails while commits fail; tries a write when none was tried for long.
    pub(super) async fn check(&self, connections: &Readers) -> LoadedRow<()> {
        let Some(failed) = self.last_failure() else { return Ok(()) };
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

/// Allocates a disk page and commits, leaving nothing behind. One message, so one transaction.
async fn try_write(conn: &mut PgConnection) -> LoadedRow<()> {
    let write = "create temp table callgate_trial on commit drop as select 1 as n; select n from callgate_trial";
    sqlx::raw_sql(write).execute(conn).await?;
    Ok(())
}
