//! Health, truthful about the database: serving means that it answered a moment ago, and that commits do not fail.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    gate::{NoAnswer, ServerState},
    web::Readiness,
};

const EVERY: Duration = Duration::from_secs(1);
const SERVICES: [&str; 2] = ["", "callgate.v1.GateService"];

/// Reporter of health, by gRPC and over HTTP.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    grpc: HealthReporter,
    readiness: watch::Sender<Readiness>,
}

impl Reporter {
    pub(super) fn new(grpc: HealthReporter) -> Self {
        Self { grpc, readiness: watch::channel(Readiness::Starting).0 }
    }

    /// Subscribes to the readiness of this server.
    pub(super) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// The server starts.
    pub(super) async fn start(&self) {
        self.set_status(ServingStatus::NotServing, Readiness::Starting).await;
    }

    /// The server ends.
    pub(super) async fn end(&self) {
        self.set_status(ServingStatus::NotServing, Readiness::Ending).await;
    }

    async fn set(&self, status: ServingStatus) {
        let is_well = status == ServingStatus::Serving;
        self.set_status(status, if is_well { Readiness::Ready } else { Readiness::Unstored }).await;
    }

    async fn set_status(&self, status: ServingStatus, readiness: Readiness) {
        self.readiness.send_replace(readiness);
        for service in SERVICES {
            self.grpc.set_service_status(service, status).await;
        }
    }
}

/// Polls the database every second, and reports each change of its health, until the task is dropped.
pub(super) async fn watch(server: Arc<ServerState>, reporter: Reporter, mut told: ServingStatus) {
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let found = server.ping().await;
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

/// Polls the database, and reports its health.
pub(super) async fn check_health(server: &ServerState, reporter: &Reporter) -> ServingStatus {
    let status = status(&server.ping().await);
    reporter.set(status).await;
    status
}

fn status(found: &Result<(), NoAnswer>) -> ServingStatus {
    if found.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing }
}
