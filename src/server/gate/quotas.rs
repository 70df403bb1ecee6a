//! Quotas of a tenant, and their enforcement before a judgement. Counts of stored data are some seconds old. No report
//! is ever refused for a quota, since it ends a call that was let through.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{Decisions, NoAnswer};
use callgate_core::domain::{
    ids::TenantId,
    tenant::{Quota, Quotas},
};
use callgate_net::clock::{Clock, Tick};

/// Token buckets of the tenants whose calls per second are limited.
#[derive(Debug, Default)]
pub(super) struct CallBuckets(Mutex<BTreeMap<TenantId, TokenBucket>>);

/// Remaining calls of a tenant: at most those of a second, refilled by time.
#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    left: f64,
    at: Tick,
}

impl CallBuckets {
    /// Takes `calls` from a tenant's bucket; false when so many are not left. A batch of more calls than a second has
    /// borrows from the next ones.
    fn take(&self, tenant: TenantId, a_second: u64, calls: usize, clock: &Clock) -> bool {
        let (most, mut buckets) = (a_second as f64, self.0.lock());
        let bucket = buckets.entry(tenant).or_insert_with(|| TokenBucket { left: most, at: clock.tick() });
        bucket.left = (bucket.left + clock.elapsed_since(bucket.at).as_secs_f64() * most).min(most);
        bucket.at = clock.tick();
        let is_there = bucket.left >= (calls as f64).min(most).max(1.0);
        if is_there {
            bucket.left -= calls as f64;
        }
        is_there
    }
}

/// Room of a tenant for new call trees and approval requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QuotaRoom {
    /// No call tree may begin.
    pub(super) no_session: bool,
    /// No approval request may be made.
    pub(super) no_question: bool,
}

impl Decisions {
    /// Room for `calls` more of a tenant.
    ///
    /// # Errors
    /// [`NoAnswer::Quota`] when it has none for calls, or for what they would store.
    pub(super) async fn room(&self, tenant: TenantId, calls: usize) -> Result<QuotaRoom, NoAnswer> {
        let Some(known) = self.server.tenant(tenant).filter(|known| known.quotas != Quotas::default()) else {
            return Ok(QuotaRoom::default());
        };
        let (quotas, used) = (known.quotas, known.used);
        if quotas.calls_per_second.is_some_and(|most| !self.call_buckets.take(tenant, most, calls, &self.server.clock))
        {
            return Err(NoAnswer::Quota(Quota::CallsPerSecond));
        }
        if quotas.stored_bytes.is_some_and(|most| used.stored_bytes >= most) {
            return Err(NoAnswer::Quota(Quota::StoredBytes));
        }
        let no_question = match quotas.approvals_open {
            Some(most) => Box::pin(self.looked_at(tenant, None)).await?.len() as u64 >= most,
            None => false,
        };
        Ok(QuotaRoom { no_session: quotas.sessions.is_some_and(|most| used.sessions >= most), no_question })
    }
}
