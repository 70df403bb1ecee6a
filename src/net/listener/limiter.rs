//! Connection limiter: total, and per address.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use super::ConnectionLimits;

/// Current counts, shared by clones.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots {
    total_max: usize,
    per_address_max: usize,
    taken: Arc<Mutex<ConnectionCounts>>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    total: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// Exceeded limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LimitExceeded {
    /// Per address.
    Address,
    /// Total.
    Total,
}

/// A slot, taken until dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    address: Option<IpAddr>,
    places: ConnectionSlots,
}

impl ConnectionSlots {
    pub(super) fn new(limits: &ConnectionLimits) -> Self {
        Self { total_max: limits.connections, per_address_max: limits.connections_per_address, taken: Arc::default() }
    }

    /// Takes a slot for a connection from `address`; a Unix socket has only the total limit.
    pub(super) fn take(&self, address: Option<IpAddr>) -> Result<ConnectionSlot, LimitExceeded> {
        let address = address.map(machine);
        let mut taken = self.taken();
        if taken.total >= self.total_max {
            return Err(LimitExceeded::Total);
        }
        if let Some(address) = address {
            let of_address = taken.by_address.entry(address).or_default();
            if *of_address >= self.per_address_max {
                return Err(LimitExceeded::Address);
            }
            *of_address += 1;
        }
        taken.total += 1;
        Ok(ConnectionSlot { address, places: self.clone() })
    }

    fn taken(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.taken.lock()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.total -= 1;
        if let Some(address) = self.address
            && let Some(of_address) = taken.by_address.get_mut(&address)
        {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

/// The unit of the per-address limit: an address, or an IPv6 /64 network.
fn machine(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_by_address_and_altogether_and_given_back() {
        let limits = ConnectionLimits { connections: 4, connections_per_address: 2, ..ConnectionLimits::default() };
        let places = ConnectionSlots::new(&limits);
        let take = |address: &str| places.take(Some(address.parse().unwrap()));
        let first = take("192.0.2.1").unwrap();
        let _second = take("::ffff:192.0.2.1").unwrap();
        assert_eq!(take("192.0.2.1").unwrap_err(), LimitExceeded::Address, "however it is written");
        drop(first);
        let _third = take("192.0.2.1").unwrap();
        let _fourth = take("2001:db8::1").unwrap();
        let fifth = take("2001:db8::ffff:2").unwrap();
        assert_eq!(take("198.51.100.1").unwrap_err(), LimitExceeded::Total);
        assert_eq!(places.take(None).unwrap_err(), LimitExceeded::Total, "a socket's callers too");
        drop(fifth);
        let _socket = places.take(None).unwrap();
        drop((_second, _third, _fourth, _socket));
        let taken = places.taken();
        assert_eq!((taken.total, taken.by_address.len()), (0, 0), "nothing is kept of who has gone");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_machine() {
        let limits = ConnectionLimits { connections_per_address: 1, ..ConnectionLimits::default() };
        let places = ConnectionSlots::new(&limits);
        let _first = places.take(Some("2001:db8::1".parse().unwrap())).unwrap();
        assert_eq!(places.take(Some("2001:db8::2".parse().unwrap())).unwrap_err(), LimitExceeded::Address);
        places.take(Some("2001:db8:0:1::1".parse().unwrap())).unwrap();
    }
}
