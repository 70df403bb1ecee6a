//! A whole plane in this process: database, gate, listener and what runs beside them. `serve` and `demo` share it.

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use super::{
    database::Database,
    follow::{self, Follow},
    keys,
    tenant_keys::{KeyFile, Named},
    traced::Batches,
    webhook::{self, Webhook},
};
use crate::{
    auth::file::Auth,
    clock::Clock,
    config::DatabaseConfig,
    gate::{Gate, NoAnswer},
    grpc,
    listener::{Address, Bound, Listener},
    store::{self, Commit, OpenError, Store, StoreError, StoreSettings},
    telemetry::Metrics,
};
use callgate_core::{domain::ids::DEFAULT_TENANT, policy::Policy};

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
/// How long a start waits for a database that does not answer, and how often it looks.
const RECOVERY: Duration = Duration::from_secs(30);
const RECOVERY_STEP: Duration = Duration::from_secs(1);
/// How often partitions are made ahead.
const PARTITIONS_EVERY: Duration = Duration::from_secs(3_600);

/// A running plane.
#[derive(Debug)]
pub(super) struct Plane {
    /// Where it listens.
    pub(super) addresses: Vec<Address>,
    database: Database,
    gate: Arc<Gate>,
    server: JoinHandle<Result<(), grpc::ServeError>>,
    stop: oneshot::Sender<()>,
    chores: Vec<JoinHandle<()>>,
}

impl Plane {
    /// Starts everything, or nothing. What can fail without a trace comes first: addresses, which are taken already,
    /// then the database, and at last the policy, which is active on every other replica from then on.
    pub(super) async fn start(
        bound: Vec<Bound>,
        database: &DatabaseConfig,
        policy: Arc<Policy>,
        file: Option<(&Path, &str)>,
        (auth, keys): (Option<Auth>, Option<KeyFile>),
        metrics: Metrics,
        settings: grpc::Settings,
    ) -> anyhow::Result<Self> {
        let addresses = bound.iter().map(Bound::address).collect();
        let follow = file.map(|(path, text)| Follow::new(path, text)).transpose()?;
        let database = Database::open(database).await?;
        let named = keys.as_ref().map(|keys| keys.named.clone());
        let (gate, listeners) = match judging(bound, &database, policy, file, (auth, named), metrics).await {
            Ok(judging) => judging,
            Err(error) => {
                database.stop().await;
                return Err(error);
            }
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let server = tokio::spawn(grpc::serve(listeners, Arc::clone(&gate), settings, stopped));
        let mut chores = chores(&gate);
        chores.extend(keys.map(|keys| tokio::spawn(keys.follow(Arc::clone(&gate)))));
        chores.extend(follow.map(|follow| tokio::spawn(follow.run(Arc::clone(&gate)))));
        Ok(Self { addresses, database, gate, server, stop, chores })
    }

    /// What the database is, for people.
    pub(super) fn database(&self) -> &str {
        &self.database.described
    }

    /// The command that opens a shell on a private database.
    pub(super) fn shell(&self) -> Option<String> {
        self.database.shell()
    }

    /// True when nobody is let in without a credential.
    pub(super) fn wants_credentials(&self) -> bool {
        self.gate.wants_credentials()
    }

    /// How many tenants have terms, and how many there are.
    pub(super) fn with_terms(&self) -> (usize, usize) {
        self.gate.with_terms()
    }

    /// The policy that judges.
    pub(super) fn policy(&self) -> Arc<Policy> {
        self.gate.policy(DEFAULT_TENANT)
    }

    /// Tells somebody of questions to people, from now on.
    pub(super) fn tell(&mut self, webhook: Webhook) {
        self.chores.push(tokio::spawn(webhook::run(webhook, Arc::clone(&self.gate))));
    }

    /// Waits for `signal`, or for the database or the server to fail for good; then stops everything in order.
    pub(super) async fn run_until(mut self, signal: impl Future<Output = ()>) -> anyhow::Result<()> {
        let failure = tokio::select! {
            () = signal => None,
            error = self.database.gone() => {
                Some(anyhow::Error::from(error).context("the private PostgreSQL failed"))
            }
            ended = &mut self.server => {
                let error = match ended {
                    Ok(Ok(())) => anyhow::anyhow!("the server ended by itself"),
                    Ok(Err(error)) => error.into(),
                    Err(error) => error.into(),
                };
                self.finish_store().await;
                return Err(error);
            }
        };
        self.stop().await?;
        failure.map_or(Ok(()), Err)
    }

    /// Lets calls in progress finish, writes what is on its way, and stops the database if it is ours.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let (done, _) = oneshot::channel();
        let _ = std::mem::replace(&mut self.stop, done).send(());
        let served = (&mut self.server).await;
        self.finish_store().await;
        served.context("the server died")?.map_err(Into::into)
    }

    async fn finish_store(self) {
        for chore in self.chores {
            chore.abort();
            let _ = chore.await;
        }
        // The last connection handlers may still hold the gate for a moment; its writer then ends with the process.
        if let Some(gate) = Arc::into_inner(self.gate) {
            gate.close().await;
        }
        self.database.stop().await;
    }
}

/// A gate that judges by its policy, and the listeners through which it will be asked.
async fn judging(
    bound: Vec<Bound>,
    database: &Database,
    policy: Arc<Policy>,
    file: Option<(&Path, &str)>,
    (auth, named): (Option<Auth>, Option<Named>),
    metrics: Metrics,
) -> anyhow::Result<(Arc<Gate>, Vec<Listener>)> {
    let (clock, mut waits_since) = (Clock::System, None);
    let gate = loop {
        let before = database.phase();
        match opened(database, &policy, (file.is_some(), named.as_ref()), &metrics).await {
            Ok(gate) => break gate,
            Err(error) if database.was_restarted(before).await => {
                tracing::warn!(error = %format!("{error:#}"), "the private PostgreSQL was restarted amid the start");
            }
            Err(error) if is_passing(&error) => {
                let since = *waits_since.get_or_insert_with(|| {
                    let limit = RECOVERY.as_secs();
                    tracing::warn!(error = %format!("{error:#}"), "the database is waited for, {limit} s at the most");
                    clock.tick()
                });
                if clock.elapsed(since) >= RECOVERY {
                    return Err(error);
                }
                tokio::time::sleep(RECOVERY_STEP).await;
            }
            Err(error) => return Err(error),
        }
    };
    if let Some(auth) = auth {
        gate.map(auth).await.context("the tenants of --auth cannot be read")?;
    }
    let listeners = bound.into_iter().map(Bound::listen).collect::<Result<_, _>>()?;
    if let Some((path, text)) = file {
        follow::apply(&gate, path, text).await?;
    }
    Ok((gate, listeners))
}

/// True where the database does not answer: it may be recovering, or start beside this server.
fn is_passing(error: &anyhow::Error) -> bool {
    let of_store = error.downcast_ref::<OpenError>();
    let is_away = |error: &StoreError| matches!(error, StoreError::Unreachable(_) | StoreError::Timeout(_));
    matches!(of_store, Some(OpenError::Store(error)) if is_away(error))
        || matches!(error.downcast_ref::<NoAnswer>(), Some(NoAnswer::OutOfReach(_)))
}

/// A gate with what is stored: the schema is brought up to date, and nothing else is changed.
async fn opened(
    database: &Database,
    policy: &Arc<Policy>,
    (has_file, keys): (bool, Option<&Named>),
    metrics: &Metrics,
) -> anyhow::Result<Arc<Gate>> {
    let commits = metrics.clone();
    let on_commit = Arc::new(move |Commit { changes, took, waited }| commits.committed(changes, took, waited));
    let options = database.options.clone();
    let traced = Arc::new(Batches { namespace: store::namespace(&options) });
    let settings = StoreSettings { options, on_commit, traced };
    let store = Store::open(settings).await.context("cannot use the database")?;
    let gate = Arc::new(Gate::new(Arc::clone(policy), store, metrics.clone(), Clock::System));
    gate.read_halts().await.context("the halts cannot be read")?;
    gate.read_credentials().await.context("it cannot be read whether there are credentials")?;
    if let Some(keys) = keys {
        gate.set_tenant_keys(keys.clone()).await.context("the tenants of --keys cannot be read")?;
        if let Some(problem) = gate.key_problems().into_iter().next() {
            bail!(problem);
        }
        for name in gate.keys_of_nobody() {
            tracing::warn!(
                "--keys names the tenant {name:?}, which does not exist: it is encrypted from its making on"
            );
        }
    }
    stored(&gate, has_file).await?;
    Ok(gate)
}

/// Takes over who there is, and the active policy of each. Without the plane's own everything would be let through that
/// it forbids, unless a file replaces it.
async fn stored(gate: &Gate, has_file: bool) -> anyhow::Result<()> {
    let errors = gate.read_tenants().await.context("the tenants and their policies cannot be read")?;
    if errors.is_empty() || has_file {
        return Ok(());
    }
    let errors: Vec<String> = errors.iter().map(|error| format!("\n  {error}")).collect();
    let (count, errors) = (errors.len(), errors.concat());
    anyhow::bail!("the stored active policy cannot be used, {count} problem(s); --policy FILE replaces it:{errors}")
}

fn chores(gate: &Arc<Gate>) -> Vec<JoinHandle<()>> {
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
            let settled = gate.expire_leases(gate.now()).await?;
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
