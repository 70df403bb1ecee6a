//! Background workers of a server, in one list.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::{
    audit_stream,
    gate::{Gate, NoAnswer},
    keys,
    telemetry::AuditExporter,
};

type Work = Pin<Box<dyn Future<Output = Result<(), NoAnswer>> + Send>>;

/// One of them. Each replica runs all. Where one replica at a time is enough, the database settles which: the others'
/// run ends at once.
struct Worker {
    /// As metrics call it.
    name: &'static str,
    /// From the beginning of one run to the next, at most; up to a tenth less, so that replicas do not come at once.
    every: Duration,
    /// Log text, once when runs begin to fail.
    trouble: &'static str,
    work: fn(Arc<Gate>) -> Work,
    /// False for upkeep of what only a database has.
    is_in_memory: bool,
}

impl Worker {
    const fn of_database(self) -> Self {
        Self { is_in_memory: false, ..self }
    }
}

const fn worker(name: &'static str, every_ms: u64, trouble: &'static str, work: fn(Arc<Gate>) -> Work) -> Worker {
    Worker { name, every: Duration::from_millis(every_ms), trouble, work, is_in_memory: true }
}

const WORKERS: &[Worker] = &[
    // Every replica settles other trees.
    worker("leases", 5_000, "calls that were never recorded could not be settled", |gate| {
        Box::pin(async move {
            let settled = gate.decisions.expire_leases(gate.store.now_of_leases()).await?;
            if settled > 0 {
                tracing::info!(settled, "calls were never recorded and count as unknown");
            }
            Ok(())
        })
    }),
    worker("partitions", 3_600_000, "the partitions of the coming months could not be made", |gate| {
        Box::pin(async move { Ok(gate.store.make_partitions().await?) })
    })
    .of_database(),
    // Every replica has another's facts within two seconds.
    worker("sharing", 1_000, SHARING, |gate| {
        Box::pin(async move {
            let shared = async {
                gate.decisions.share_health().await?;
                gate.server.read_halts().await?;
                gate.privacy.apply_erasure_marks().await?;
                gate.identities.read_tenants().await.map(drop)
            };
            let shared = shared.await;
            gate.identities.tell_locked();
            gate.policies.watch_policies();
            gate.insight.tell_load();
            shared
        })
    }),
    // A read of two periods ago does not hold any more: a revocation holds within two seconds.
    worker("credentials", 800, "credentials could not be read, and who shows one is refused", |gate| {
        Box::pin(async move { gate.identities.read_credentials().await })
    }),
    // One replica at a time counts, and all read the counts.
    worker("learning", 2_000, "retry profiles could not be brought up to date", |gate| {
        Box::pin(async move { gate.decisions.learn().await })
    }),
    worker("stock", 10_000, "questions to people and stopped sessions could not be counted", |gate| {
        Box::pin(async move { gate.insight.take_stock().await })
    })
    .of_database(),
    worker("tenants", 5_000, "what tenants have stored could not be counted or erased", |gate| {
        Box::pin(async move { gate.privacy.look_after_tenants().await })
    })
    .of_database(),
    // Also while another replica deletes.
    worker("clocks", 60_000, "the clocks could not be compared", |gate| {
        Box::pin(async move { gate.privacy.look_at_clocks(gate.privacy.times()).await.map(drop) })
    })
    .of_database(),
    // One replica at a time deletes, once an hour.
    worker("retention", 60_000, "what is past its term could not be deleted", |gate| {
        Box::pin(async move { gate.privacy.delete_old(gate.privacy.times()).await.map(drop) })
    })
    .of_database(),
    // One replica at a time counts, once an hour, and after calls were forgotten.
    worker("calls_hourly", 60_000, "calls could not be counted by hour", |gate| {
        Box::pin(async move { Ok(gate.store.roll_up().await.map(drop)?) })
    })
    .of_database(),
    worker("self_corrections", 60_000, "what refusals came to could not be read", |gate| {
        Box::pin(async move { gate.decisions.learn_self_corrections().await })
    }),
    worker("audit", 21_600_000, "audit logs could not be verified", |gate| {
        Box::pin(async move { gate.privacy.verify_audits().await })
    })
    .of_database(),
];
const SHARING: &str = "what replicas share (how tools fare, what is halted or forgotten, tenants) could not be read";

/// Starts all of them.
pub(super) fn start(gate: &Arc<Gate>) -> Vec<JoinHandle<()>> {
    let start = |worker: &'static Worker| {
        tokio::spawn(run(worker.name, worker.every, worker.trouble, Arc::clone(gate), worker.work))
    };
    let runs = |worker: &&Worker| worker.is_in_memory || !gate.store.is_in_memory();
    let mut started: Vec<_> = WORKERS.iter().filter(runs).map(start).collect();
    // It waits for issuers to be asked about, too.
    started.push(tokio::spawn(keys::follow(Arc::clone(&gate.identities))));
    started
}

/// Starts the export of the audit log.
pub(super) fn export_audit(exporter: Arc<AuditExporter>, gate: &Arc<Gate>) -> JoinHandle<()> {
    const EVERY: Duration = Duration::from_secs(2);
    const TROUBLE: &str = "audit entries could not be exported; they are exported again until the collector has them";
    let work = move |gate: Arc<Gate>| -> Work {
        let exporter = Arc::clone(&exporter);
        Box::pin(async move { audit_stream::export_entries(&exporter, &gate).await })
    };
    tokio::spawn(run("audit_stream", EVERY, TROUBLE, Arc::clone(gate), work))
}

/// Runs the work repeatedly, and logs a trouble once until it is over.
async fn run(
    name: &'static str,
    every: Duration,
    trouble: &'static str,
    gate: Arc<Gate>,
    work: impl Fn(Arc<Gate>) -> Work,
) {
    let mut is_troubled = false;
    loop {
        let next = Instant::now() + (every - jitter(every / 10));
        let worked = work(Arc::clone(&gate)).await;
        gate.server.metrics().record_work(name, worked.is_ok());
        if let Err(error) = worked.as_ref().map_err(ToString::to_string)
            && !is_troubled
        {
            tracing::warn!(%error, "{trouble}");
        }
        is_troubled = worked.is_err();
        sleep_until(next).await;
    }
}

/// Up to so much.
fn jitter(most: Duration) -> Duration {
    let mut random = [0];
    // Without random bytes there is no jitter.
    let _ = getrandom::fill(&mut random);
    most * u32::from(random[0]) / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_shortened_by_less_than_a_tenth() {
        let most = Duration::from_millis(80);
        let drawn: Vec<Duration> = (0..64).map(|_| jitter(most)).collect();
        assert!(drawn.iter().all(|one| *one < most), "{drawn:?}");
        assert!(drawn.iter().any(|one| *one != drawn[0]), "{drawn:?}");
    }
}
