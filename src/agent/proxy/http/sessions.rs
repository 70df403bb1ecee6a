//! MCP sessions: each has a proxy of its own, and so a session at the server. Clients without one (protocol versions
//! from 2026-07-28, and each client before its server has assigned one) share one.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue};
use lru::LruCache;
use parking_lot::Mutex;

use crate::proxy::{Setup, state::Proxy};

/// Session header.
const SESSION: &str = "mcp-session-id";
/// Maximum number of sessions; the least recent is evicted.
const SESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");

/// All sessions of a server.
pub(super) struct Sessions {
    setup: Setup,
    known: Mutex<LruCache<Option<HeaderValue>, Arc<Proxy>>>,
    count: AtomicU64,
}

impl Sessions {
    pub(super) fn new(setup: Setup) -> Self {
        Self { setup, known: Mutex::new(LruCache::new(SESSIONS_MAX)), count: AtomicU64::new(0) }
    }

    /// The proxy of a request, and the client's number in it: a request without a session has a number of its own.
    pub(super) fn of(&self, headers: &HeaderMap) -> anyhow::Result<(Arc<Proxy>, u64)> {
        let name = headers.get(SESSION).cloned();
        let client = if name.is_some() { 0 } else { self.count.fetch_add(1, Ordering::Relaxed) + 1 };
        let mut known = self.known.lock();
        Ok((Arc::clone(known.try_get_or_insert(name, || self.setup.proxy().map(Arc::new))?), client))
    }

    /// Ends a session after its client did.
    pub(super) fn end(&self, headers: &HeaderMap) {
        let Some(name) = headers.get(SESSION).cloned() else { return };
        let ended = self.known.lock().pop(&Some(name));
        if let Some(proxy) = ended {
            // No client waits.
            proxy.fail_open_requests("");
        }
    }

    /// Shuts down: open calls are unknown. Waits for their reports, at most `limit`.
    pub(super) async fn close(&self, limit: Duration) {
        let proxies: Vec<Arc<Proxy>> = {
            let known = self.known.lock();
            known.iter().map(|(_, proxy)| Arc::clone(proxy)).collect()
        };
        join_all(proxies.iter().map(|proxy| {
            proxy.fail_open_requests("");
            proxy.plane.wait_for_reports(limit)
        }))
        .await;
    }
}
