//! Health, truthful about the database: serving means that it answered a moment ago, and that commits do not fail.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::gate::{Gate, NoAnswer};

const EVERY: Duration = Duration::from_secs(1);
const SERVICES: [&str; 2] = ["", "callgate.v1.GateService"];

/// Who tells health, by gRPC and over HTTP.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    grpc: HealthReporter,
    is_ready: watch::Sender<bool>,
}

impl Reporter {
    pub(super) fn new(grpc: HealthReporter) -> Self {
        Self { grpc, is_ready: watch::channel(false).0 }
    }

    /// Whether calls are answered.
    pub(super) fn is_ready(&self) -> watch::Receiver<bool> {
        self.is_ready.subscribe()
    }

    pub(super) async fn set(&self, status: ServingStatus) {
        self.is_ready.send_replace(status == ServingStatus::Serving);
        for service in SERVICES {
            self.grpc.set_service_status(service, status).await;
        }
    }
}

/// Asks the database every second, and says what it found whenever that changes, until the task is dropped.
pub(super) async fn watch(gate: Arc<Gate>, reporter: Reporter, mut told: ServingStatus) {
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
        reporter.set(status).await;
        told = status;
    }
}

/// Asks the database, and says what it found.
pub(super) async fn look(gate: &Gate, reporter: &Reporter) -> ServingStatus {
    let status = status(&gate.ping().await);
    reporter.set(status).await;
    status
}

fn status(found: &Result<(), NoAnswer>) -> ServingStatus {
    if found.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing }
}
