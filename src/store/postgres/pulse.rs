//! Whether the database answers: asked each second by the health service, and whenever a read came to nothing. A
//! replica that is busy is not a database that is away.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use super::{decode::Loaded, maintain, read::Readers, time::DbTime};

/// How long an answer holds for those who ask meanwhile.
const HOLDS: Duration = Duration::from_millis(500);

/// The one ping, on a connection that nothing else uses.
#[derive(Debug)]
pub(super) struct Pulse {
    readers: Readers,
    time: Arc<DbTime>,
    /// What came of the last ping, and when.
    last: Mutex<Option<(Instant, Loaded<()>)>>,
}

impl Pulse {
    pub(super) fn new(readers: Readers, time: Arc<DbTime>) -> Self {
        Self { readers, time, last: Mutex::default() }
    }

    /// Does the database answer? One ping goes out at a time: whoever asks meanwhile waits for its answer.
    pub(super) async fn ask(&self) -> Loaded<()> {
        let mut last = self.last.lock().await;
        if let Some((_, known)) = last.as_ref().filter(|(at, _)| at.elapsed() < HOLDS) {
            return known.clone();
        }
        let answered = self.readers.read(async |conn| maintain::now(conn).await).await;
        let answered = answered.map(|now| self.time.observe(now)).map_err(|error| self.readers.named(error));
        // From now on: who has waited for a ping that took long does not send another after it.
        *last = Some((Instant::now(), answered.clone()));
        answered
    }

    /// The connection that nothing else uses.
    pub(super) const fn connections(&self) -> &Readers {
        &self.readers
    }

    pub(super) async fn close(&self) {
        self.readers.close().await;
    }
}
