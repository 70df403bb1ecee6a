//! Health, truthful about the database: serving means that it answered a moment ago, and that commits do not fail.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::gate::{Gate, NoAnswer};

const EVERY: Duration = Duration::from_secs(1);
const SERVICES: [&str; 2] = ["", "callgate.v1.GateService"];

/// Asks the database every second, and says what it found whenever that changes, until the task is dropped.
pub(super) async fn watch(gate: Arc<Gate>, reporter: HealthReporter, mut told: ServingStatus) {
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let found = gate.ping().await;
        let status = status(&found);
        if status == told {
            continue;
        }
        match found {
            Ok(()) => tracing::info!("health is SERVING: the database answers, and stores what it is given"),
            Err(error) => tracing::warn!(%error, "health is NOT_SERVING"),
        }
        set(&reporter, status).await;
        told = status;
    }
}

/// Asks the database, and says what it found.
pub(super) async fn look(gate: &Gate, reporter: &HealthReporter) -> ServingStatus {
    let status = status(&gate.ping().await);
    set(reporter, status).await;
    status
}

fn status(found: &Result<(), NoAnswer>) -> ServingStatus {
    if found.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing }
}

pub(super) async fn set(reporter: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}
