//! What a server does beside its answers, again and again.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use crate::gate::{Gate, NoAnswer};
use crate::keys;

/// How often it is looked for calls that nobody reported on.
const LEASES_EVERY: Duration = Duration::from_secs(5);
/// How often credentials are read that are in use: what was read two of these ago does not hold any more.
const CREDENTIALS_EVERY: Duration = Duration::from_millis(800);
/// How often replicas tell each other how tools fare.
const HEALTH_EVERY: Duration = Duration::from_secs(1);
/// How often follow-ups are counted, and counts are read.
const LEARN_EVERY: Duration = Duration::from_secs(2);
/// How often it is counted what waits for people.
const STOCK_EVERY: Duration = Duration::from_secs(10);
/// How often it is read what refusals for arguments came to.
const SELF_CORRECTIONS_EVERY: Duration = Duration::from_secs(60);
/// How often it is counted what tenants have stored, and erased what they have left.
const TENANTS_EVERY: Duration = Duration::from_secs(5);
/// How often the clocks are compared, and it is asked whether it is time to look for what is past its term.
const RETENTION_EVERY: Duration = Duration::from_secs(60);
/// How often partitions are made ahead.
const PARTITIONS_EVERY: Duration = Duration::from_secs(3_600);

/// Starts all of them.
pub(super) fn start(gate: &Arc<Gate>) -> Vec<JoinHandle<()>> {
    vec![
        tokio::spawn(expire_leases(Arc::clone(gate))),
        tokio::spawn(make_partitions(Arc::clone(gate))),
        tokio::spawn(share_health(Arc::clone(gate))),
        tokio::spawn(read_credentials(Arc::clone(gate))),
        tokio::spawn(keys::follow(Arc::clone(gate))),
        tokio::spawn(learn(Arc::clone(gate))),
        tokio::spawn(take_stock(Arc::clone(gate))),
        tokio::spawn(look_after_tenants(Arc::clone(gate))),
        tokio::spawn(look_at_clocks(Arc::clone(gate))),
        tokio::spawn(delete_old(Arc::clone(gate))),
        tokio::spawn(learn_self_corrections(Arc::clone(gate))),
    ]
}

/// Settles what nobody reported on, again and again. Every replica does, each on other trees.
async fn expire_leases(gate: Arc<Gate>) {
    every(LEASES_EVERY, "calls that were never recorded could not be settled", || {
        let gate = Arc::clone(&gate);
        async move {
            let settled = gate.expire_leases(gate.now_of_leases()).await?;
            if settled > 0 {
                tracing::info!(settled, "calls were never recorded and count as unknown");
            }
            Ok(())
        }
    })
    .await;
}

/// Replicas tell each other how tools fare, what is halted or forgotten, and which policy is active: what one knows is
/// known to all within two seconds.
async fn share_health(gate: Arc<Gate>) {
    let trouble = "what replicas share (how tools fare, what is halted or forgotten, tenants) could not be read";
    every(HEALTH_EVERY, trouble, || {
        let gate = Arc::clone(&gate);
        async move {
            let shared = async {
                gate.share_health().await?;
                gate.read_halts().await?;
                gate.read_forgotten().await?;
                gate.read_tenants().await.map(drop)
            };
            let shared = shared.await;
            gate.watch_policies();
            gate.tell_load();
            shared
        }
    })
    .await;
}

/// Reads which credentials hold: a revocation holds on every replica within two seconds.
async fn read_credentials(gate: Arc<Gate>) {
    every(CREDENTIALS_EVERY, "credentials could not be read, and who shows one is refused", || {
        let gate = Arc::clone(&gate);
        async move { gate.read_credentials().await }
    })
    .await;
}

/// Counts what retries came to. Every replica tries; one at a time does, and all read what was counted.
async fn learn(gate: Arc<Gate>) {
    every(LEARN_EVERY, "retry profiles could not be brought up to date", || {
        let gate = Arc::clone(&gate);
        async move { gate.learn().await }
    })
    .await;
}

/// Counts what waits for people and what was stopped, for the metrics. Every replica does: any of them may be the one
/// that is asked.
async fn take_stock(gate: Arc<Gate>) {
    every(STOCK_EVERY, "questions to people and stopped sessions could not be counted", || {
        let gate = Arc::clone(&gate);
        async move { gate.take_stock().await }
    })
    .await;
}

/// Counts what limited tenants have stored, and erases what deleted ones have left.
async fn look_after_tenants(gate: Arc<Gate>) {
    every(TENANTS_EVERY, "what tenants have stored could not be counted or erased", || {
        let gate = Arc::clone(&gate);
        async move { gate.look_after_tenants().await }
    })
    .await;
}

/// Looks at the clocks that retention goes by. Every replica does, also while one of them deletes.
async fn look_at_clocks(gate: Arc<Gate>) {
    every(RETENTION_EVERY, "the clocks could not be compared", || {
        let gate = Arc::clone(&gate);
        async move { gate.look_at_clocks(gate.times()).await.map(drop) }
    })
    .await;
}

/// Deletes what is past its term. Every replica asks; one at a time does, once an hour.
async fn delete_old(gate: Arc<Gate>) {
    every(RETENTION_EVERY, "what is past its term could not be deleted", || {
        let gate = Arc::clone(&gate);
        async move { gate.delete_old(gate.times()).await.map(drop) }
    })
    .await;
}

/// Reads what refusals for arguments came to.
async fn learn_self_corrections(gate: Arc<Gate>) {
    every(SELF_CORRECTIONS_EVERY, "what refusals came to could not be read", || {
        let gate = Arc::clone(&gate);
        async move { gate.learn_self_corrections().await }
    })
    .await;
}

/// Works again and again, and says once what the trouble is until it is over.
async fn every<F>(pause: Duration, trouble: &'static str, work: impl Fn() -> F)
where
    F: Future<Output = Result<(), NoAnswer>>,
{
    let mut tick = interval(pause);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut troubled = false;
    loop {
        tick.tick().await;
        let worked = work().await;
        if let Err(error) = worked.as_ref().map_err(ToString::to_string)
            && !troubled
        {
            tracing::warn!(%error, "{trouble}");
        }
        troubled = worked.is_err();
    }
}

async fn make_partitions(gate: Arc<Gate>) {
    let mut tick = interval(PARTITIONS_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = gate.make_partitions().await {
            tracing::warn!(%error, "the partitions of the coming months could not be made");
        }
    }
}
