//! Count of the `WAIT`s of a call. The log has the 1st, 10th, 100th and so on, and the count at their end. A repetition
//! under another call_id is another call.

use std::{
    hash::{BuildHasher as _, RandomState},
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
};

use lru::LruCache;
use parking_lot::Mutex;

use callgate_core::domain::{call::Request, finding::Decision, verdict::Verdict};

/// Maximum number of counted calls; the least recently used ones are evicted.
const WAITING_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("some");

/// Counts of `WAIT`s by call. A call is identified by a hash: two calls with one hash share their count.
#[derive(Debug)]
pub struct WaitTracker {
    told: Mutex<LruCache<u64, u32>>,
    /// Number of entries. At 0, the usual case, nothing is locked.
    len: AtomicUsize,
    hasher: RandomState,
}

impl Default for WaitTracker {
    fn default() -> Self {
        Self {
            told: Mutex::new(LruCache::new(WAITING_MAX)),
            len: AtomicUsize::default(),
            hasher: RandomState::default(),
        }
    }
}

impl WaitTracker {
    /// Count of `WAIT`s of this call before this verdict.
    pub fn before(&self, verdict: &Verdict, request: &Request) -> u32 {
        let waits = verdict.decision == Decision::Wait;
        if !waits && self.len.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let call = self.hasher.hash_one((request.tenant.0, request.session.as_str(), request.call_id.as_str()));
        let mut told = self.told.lock();
        let before = if waits {
            let count = told.get_or_insert_mut(call, || 0);
            *count = count.saturating_add(1);
            *count - 1
        } else {
            told.pop(&call).unwrap_or(0)
        };
        self.len.store(told.len(), Ordering::Relaxed);
        before
    }
}

/// True for a wait that gets a log line after `before` others: the first, the tenth, the hundredth.
pub(super) fn is_worth_a_line(before: u32) -> bool {
    let nth = before.saturating_add(1);
    nth == 10_u32.saturating_pow(nth.ilog10())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::testing::{allow, proposal, refused_verdict};
    use callgate_core::domain::reason::Reason;

    #[test]
    fn waits_are_counted_until_the_call_hears_something_else() {
        let (waits, request) = (WaitTracker::default(), proposal("search").request);
        let wait = refused_verdict(Decision::Wait, "same_call", Reason::RetryTooEarly);
        assert_eq!(waits.before(&allow(), &request), 0);
        let counted: Vec<u32> = (0..3).map(|_| waits.before(&wait, &request)).collect();
        assert_eq!(counted, [0, 1, 2]);
        let other = Request {
            session: callgate_core::domain::ids::SessionId::parse("session", "s2").unwrap(),
            ..request.clone()
        };
        assert_eq!(waits.before(&wait, &other), 0, "another session's call of that name is another");
        assert_eq!((waits.before(&allow(), &request), waits.before(&allow(), &request)), (3, 0));
    }

    #[test]
    fn the_first_the_tenth_and_the_hundredth_have_lines() {
        let with_line: Vec<u32> = (0..1_000).filter(|before| is_worth_a_line(*before)).collect();
        assert_eq!(with_line, [0, 9, 99, 999]);
    }
}
