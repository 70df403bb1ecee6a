//! The database's time, carried forward on the monotonic clock between two answers that tell it: replicas whose clocks
//! differ agree on leases.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::domain::time::Timestamp;

#[derive(Debug)]
pub(super) struct DbTime(Mutex<(Timestamp, Instant)>);

impl DbTime {
    pub(super) fn new(now: Timestamp) -> Self {
        Self(Mutex::new((now, Instant::now())))
    }

    /// Takes in what the database said just now. An answer took its time to come, so it never sets the clock back.
    pub(super) fn observe(&self, now: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let carried = known.0.plus_ms(millis(known.1));
        *known = (now.max(carried), Instant::now());
    }

    pub(super) fn now(&self) -> Timestamp {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.0.plus_ms(millis(known.1))
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(0)
}
