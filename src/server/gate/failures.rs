//! Failed credentials by address: an address with many failures waits before any more of its credentials are read.
//! Credentials that were read a moment ago go on, so that one attacker keeps no one else of the same address from
//! working.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroUsize,
    time::Duration,
};

use lru::LruCache;
use parking_lot::Mutex;

use callgate_net::clock::{Clock, Tick};

/// Failures of an address in [`SPAN`].
const FAILURES_MAX: u32 = 20;
const SPAN: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const ADDRESSES_MAX: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();

/// Failures by address, each with the start of its count.
#[derive(Debug)]
pub(super) struct Failures(Mutex<LruCache<Option<IpAddr>, (Tick, u32)>>);

impl Default for Failures {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(ADDRESSES_MAX)))
    }
}

impl Failures {
    /// Remaining wait of this address; none when it may try.
    pub(super) fn wait(&self, clock: &Clock, from: Option<IpAddr>) -> Option<Duration> {
        let all = self.0.lock();
        let (since, count) = all.peek(&site(from))?;
        SPAN.checked_sub(clock.elapsed_since(*since)).filter(|_| *count >= FAILURES_MAX)
    }

    /// It failed.
    pub(super) fn count_failure(&self, clock: &Clock, from: Option<IpAddr>) {
        let mut all = self.0.lock();
        let (since, count) = all.get_or_insert_mut(site(from), || (clock.tick(), 0));
        if clock.elapsed_since(*since) >= SPAN {
            (*since, *count) = (clock.tick(), 0);
        }
        *count += 1;
    }
}

/// Groups IPv6 addresses by /64: the holder of one has 2^64 of them.
fn site(from: Option<IpAddr>) -> Option<IpAddr> {
    Some(match from?.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_core::domain::time::Timestamp;

    #[test]
    fn an_address_that_fails_often_waits_and_no_other_does() {
        let (clock, failures) = (Clock::fake(Timestamp::from_millis(0)), Failures::default());
        let at = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        for _ in 0..FAILURES_MAX {
            assert_eq!(failures.wait(&clock, at("192.0.2.1")), None);
            failures.count_failure(&clock, at("192.0.2.1"));
            failures.count_failure(&clock, at("2001:db8::1"));
        }
        clock.advance(10_000);
        assert_eq!(failures.wait(&clock, at("192.0.2.1")), Some(Duration::from_secs(50)));
        assert!(failures.wait(&clock, at("::ffff:192.0.2.1")).is_some(), "the same address, written otherwise");
        assert!(failures.wait(&clock, at("2001:db8::ffff:2")).is_some(), "the same network");
        assert_eq!(failures.wait(&clock, at("192.0.2.2")), None);
        assert_eq!((failures.wait(&clock, at("2001:db8:0:1::1")), failures.wait(&clock, None)), (None, None));
        clock.advance(50_000);
        failures.count_failure(&clock, at("192.0.2.1"));
        assert_eq!(failures.wait(&clock, at("192.0.2.1")), None, "it begins anew");
    }
}
