//! State of this server that its services share: cached call trees, admission control, policies, tenants, halts.

use std::sync::{Arc, OnceLock};

use super::{
    NoAnswer, NotificationTargets, admission::Admission, halts::Halts, minute_metrics::MinuteMetrics, owners::Owners,
    policies::ActivePolicy, tenants::Tenants,
};
use crate::telemetry::Metrics;
use callgate_core::policy::Policy;
use callgate_net::clock::Clock;
use callgate_store::{DecisionStore, Slots};

/// State of this server that its services share.
#[derive(Debug)]
pub struct ServerState {
    pub(super) store: Arc<dyn DecisionStore>,
    pub(super) slots: Slots,
    pub(super) admission: Arc<Admission>,
    pub(super) policy: ActivePolicy,
    pub(super) tenants: Tenants,
    pub(super) owners: Owners,
    pub(super) halts: Halts,
    pub(super) minute_metrics: MinuteMetrics,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    /// Destinations of notifications, where this server has some.
    pub(crate) notification_targets: OnceLock<Arc<dyn NotificationTargets>>,
}

impl ServerState {
    pub(super) fn new(policy: Arc<Policy>, store: Arc<dyn DecisionStore>, metrics: Metrics, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            store,
            slots: Slots::default(),
            admission: Admission::new(clock.clone(), metrics.clone()),
            policy: ActivePolicy::new(policy),
            tenants: Tenants::default(),
            owners: Owners::default(),
            halts: Halts::default(),
            minute_metrics: MinuteMetrics::default(),
            metrics,
            clock,
            notification_targets: OnceLock::new(),
        })
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Does the database respond, and store changes?
    ///
    /// # Errors
    /// [`NoAnswer`] when it does not.
    pub async fn ping(&self) -> Result<(), NoAnswer> {
        let found = self.store.ping().await;
        self.metrics.store_up(found.is_ok());
        Ok(found?)
    }
}
