//! Bulkhead: the calls in flight under a concurrency limit, each with a lease, and the queue in front of it.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    fingerprint::Fingerprint,
    ids::{CallId, SessionId},
    time::Timestamp,
};

/// Highest limit of calls in flight.
pub const IN_FLIGHT_MAX: u32 = 10_000;
/// Wait of the first calls in the queue, in milliseconds; later ones wait a multiple of it.
const QUEUE_STEP_MS: u64 = 1_000;
/// Longest wait of a queued call, in milliseconds.
const QUEUE_WAIT_MS_MAX: u64 = 30_000;
/// A queued call that is this late, in milliseconds, loses its place.
const QUEUE_GRACE_MS: u64 = 5_000;

/// A call that asks for its turn under one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkheadClaim {
    /// Key of the limit, within the tenant: its name, and the tool or resource that it counts.
    pub limit: Arc<str>,
    /// Maximum number of calls in flight; at least 1.
    pub max: u32,
    /// Session of the call.
    pub session: SessionId,
    /// The call.
    pub call_id: CallId,
    /// Fingerprint: a model that repeats a queued call under another id keeps its place.
    pub fingerprint: Fingerprint,
    /// End of the lease of a call in flight.
    pub until: Timestamp,
}

impl BulkheadClaim {
    /// Wait of a call at this place of the queue, in milliseconds.
    #[must_use]
    pub fn wait_ms(&self, place: u64) -> u64 {
        let rounds = place.div_ceil(u64::from(self.max.max(1)));
        rounds.saturating_mul(QUEUE_STEP_MS).min(QUEUE_WAIT_MS_MAX)
    }

    /// End of the lease of the place, for a call that waits as long as told.
    #[must_use]
    pub fn place_until(&self, place: u64, now: Timestamp) -> Timestamp {
        now.plus_ms(self.wait_ms(place) + QUEUE_GRACE_MS)
    }
}

/// The turn of a call under one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkheadTurn {
    /// In flight. False for a call that was so before.
    InFlight {
        /// True for a new lease.
        is_new: bool,
    },
    /// In the queue.
    Queued {
        /// Place, from 1.
        place: u64,
    },
}

/// A full bulkhead, as the queued call finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullBulkhead {
    /// Name of the limit in the policy.
    pub name: Arc<str>,
    /// Its scope, for texts: `of search`, `on order/42`, `under heavy`.
    pub scope: String,
    /// Maximum number of calls in flight.
    pub max: u32,
    /// Place in the queue, from 1.
    pub place: u64,
    /// Wait until the next Evaluate, in milliseconds.
    pub wait_ms: u64,
}

/// The bulkheads of one tenant, in memory.
#[derive(Debug, Clone, Default)]
pub struct Bulkheads {
    entries: BTreeMap<Arc<str>, Vec<Entry>>,
}

#[derive(Debug, Clone)]
struct Entry {
    session: SessionId,
    call_id: CallId,
    fingerprint: Fingerprint,
    in_flight: bool,
    arrived_at: Timestamp,
    until: Timestamp,
}

impl Bulkheads {
    /// Gives the call its turn: in flight where fewer than the maximum are, counting the calls that arrived before;
    /// otherwise a place in the queue. A claim of a call in flight extends its lease.
    pub fn claim(&mut self, claim: &BulkheadClaim, now: Timestamp) -> BulkheadTurn {
        let entries = self.entries.entry(Arc::clone(&claim.limit)).or_default();
        entries.retain(|entry| entry.until > now);
        let is_it = |entry: &Entry| entry.session == claim.session && entry.call_id == claim.call_id;
        if let Some(held) = entries.iter_mut().find(|entry| entry.in_flight && is_it(entry)) {
            held.until = held.until.max(claim.until);
            return BulkheadTurn::InFlight { is_new: false };
        }
        let is_queued = |entry: &Entry| {
            !entry.in_flight && entry.session == claim.session && entry.fingerprint == claim.fingerprint
        };
        let arrived_at = entries.iter().find(|entry| is_queued(entry)).map_or(now, |entry| entry.arrived_at);
        entries.retain(|entry| !is_queued(entry));
        let mine = (arrived_at, &claim.session, &claim.fingerprint);
        let ahead = entries
            .iter()
            .filter(|entry| entry.in_flight || (entry.arrived_at, &entry.session, &entry.fingerprint) < mine);
        let place = (ahead.count() as u64 + 1).saturating_sub(u64::from(claim.max));
        entries.push(Entry {
            session: claim.session.clone(),
            call_id: claim.call_id.clone(),
            fingerprint: claim.fingerprint,
            in_flight: place == 0,
            arrived_at,
            until: if place == 0 { claim.until } else { claim.place_until(place, now) },
        });
        if place == 0 { BulkheadTurn::InFlight { is_new: true } } else { BulkheadTurn::Queued { place } }
    }

    /// Ends the leases of a call.
    pub fn release(&mut self, session: &SessionId, call_id: &CallId) {
        for entries in self.entries.values_mut() {
            entries.retain(|entry| !(entry.in_flight && entry.session == *session && entry.call_id == *call_id));
        }
        self.entries.retain(|_, entries| !entries.is_empty());
    }

    /// Extends the leases of a call.
    pub fn extend(&mut self, session: &SessionId, call_id: &CallId, until: Timestamp) {
        let entries = self.entries.values_mut().flatten();
        let held = entries.filter(|entry| entry.in_flight && entry.session == *session && entry.call_id == *call_id);
        held.for_each(|entry| entry.until = entry.until.max(until));
    }
}
