//! progress: how far a command has come, told on standard error.

use std::{
    io::{self, Write as _},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// One line that is written anew with each percent.
#[derive(Debug)]
pub struct Progress {
    whole: u64,
    done: AtomicU64,
}

impl Progress {
    /// Of that much; of nothing, nothing is told.
    #[must_use]
    pub const fn new(whole: u64) -> Self {
        Self { whole, done: AtomicU64::new(0) }
    }

    /// That much more is done.
    pub fn add(&self, more: u64) {
        let before = self.done.fetch_add(more, Relaxed);
        let percent = |done: u64| (done * 100).checked_div(self.whole);
        if let Some(now) = percent(before + more).filter(|now| Some(*now) > percent(before)) {
            // A terminal that has gone is no reason to stop.
            let _ = write!(io::stderr().lock(), "\r{now} %");
        }
    }

    /// Wipes the line.
    pub fn clear(&self) {
        if self.whole > 0 {
            let _ = write!(io::stderr().lock(), "\r     \r");
        }
    }
}
