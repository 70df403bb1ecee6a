//! Health, truthful about the database: serving means that it answered a moment ago.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::gate::Gate;

const EVERY: Duration = Duration::from_secs(1);
const SERVICES: [&str; 2] = ["", "callgate.v1.GateService"];

/// Asks the database every second, and says what it found, until the task is dropped.
pub(super) async fn watch(gate: Arc<Gate>, reporter: HealthReporter) {
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        look(&gate, &reporter).await;
    }
}

/// Asks the database, and says what it found.
pub(super) async fn look(gate: &Gate, reporter: &HealthReporter) {
    let status = match gate.ping().await {
        Ok(()) => ServingStatus::Serving,
        Err(_) => ServingStatus::NotServing,
    };
    set(reporter, status).await;
}

pub(super) async fn set(reporter: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}
