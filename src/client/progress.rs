//! Progress line of a command, on standard error.

use std::{
    io::{self, Write as _},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// A line that is rewritten at each percent.
#[derive(Debug)]
pub struct Progress {
    whole: u64,
    done: AtomicU64,
}

impl Progress {
    /// Progress of `whole`; silent for 0.
    #[must_use]
    pub const fn new(whole: u64) -> Self {
        Self { whole, done: AtomicU64::new(0) }
    }

    /// Adds `more`.
    pub fn add(&self, more: u64) {
        let before = self.done.fetch_add(more, Relaxed);
        let percent = |done: u64| (done * 100).checked_div(self.whole);
        if let Some(now) = percent(before + more).filter(|now| Some(*now) > percent(before)) {
            // A terminal that has gone is no reason to stop.
            let _ = write!(io::stderr().lock(), "\r{now} %");
        }
    }

    /// Clears the line.
    pub fn clear(&self) {
        if self.whole > 0 {
            let _ = write!(io::stderr().lock(), "\r     \r");
        }
    }
}
