//! A whole server in this process: database, gate, listener and workers. `serve` and `demo` share it.

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    auth::file::Auth,
    config::DatabaseConfig,
    database::Database,
    file_watcher::{self, FollowedFile},
    gate::{Gate, NoAnswer},
    grpc,
    notifications::{self, Destinations},
    telemetry::{AuditExporter, Metrics},
    tenant_keys::KeyFile,
    traced::BatchTracer,
    workers,
};
use callgate_core::{domain::ids::DEFAULT_TENANT, policy::Policy};
use callgate_net::{
    clock::Clock,
    listener::{Address, BoundListener, Listener},
};
use callgate_store::{Commit, OpenError, Store, StoreError, StoreSettings};

/// Longest wait of a start for a database that does not respond, and its polling interval.
const RECOVERY: Duration = Duration::from_secs(30);
const RECOVERY_STEP: Duration = Duration::from_secs(1);

/// The parts of a server that its configuration names, next to its listeners and database.
#[derive(Debug)]
pub struct ServerSetup<'a> {
    /// The policy of the deployment's own tenant, until another one is active.
    pub policy: Arc<Policy>,
    /// The followed policy file, and its text.
    pub file: Option<(&'a Path, &'a str)>,
    /// The mapping of certificates and issuers' tokens.
    pub auth: Option<Auth>,
    /// The encryption keys.
    pub keys: Option<KeyFile>,
    /// The instruments.
    pub metrics: Metrics,
    /// The limits and pages of the listeners.
    pub settings: grpc::GrpcSettings,
}

/// A running server.
#[derive(Debug)]
pub struct ServerHandle {
    /// Addresses that it listens on.
    pub addresses: Vec<Address>,
    /// Address of the operations listener, for monitoring.
    pub operations: Option<Address>,
    database: Database,
    gate: Arc<Gate>,
    server: JoinHandle<Result<(), grpc::ServeError>>,
    stop: oneshot::Sender<()>,
    workers: Vec<JoinHandle<()>>,
}

impl ServerHandle {
    /// Starts everything, or nothing. The steps that can fail without a trace come first: addresses, which are taken
    /// already, then the database, and at last the policy, which is active on every other replica from then on. Without
    /// a `database` everything is in memory.
    pub async fn start(
        bound: Vec<BoundListener>,
        database: Option<&DatabaseConfig>,
        mut setup: ServerSetup<'_>,
    ) -> anyhow::Result<Self> {
        let of = |operations| bound.iter().filter(move |bound| bound.is_for_operations() == operations);
        let (addresses, operations) =
            (of(false).map(BoundListener::address).collect(), of(true).map(BoundListener::address).next());
        let follow = setup.file.map(|(path, text)| FollowedFile::new(path, text)).transpose()?;
        let database = match database {
            Some(database) => Database::open(database).await?,
            None => Database::none(),
        };
        let (gate, listeners) = match judging(bound, &database, &mut setup).await {
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
        let server = tokio::spawn(grpc::serve(listeners, Arc::clone(&gate), setup.settings, stopped));
        gate.compute_lifetimes();
        let mut workers = workers::start(&gate);
        workers.extend(setup.keys.map(|keys| tokio::spawn(keys.follow(Arc::clone(&gate.identities)))));
        workers.extend(follow.map(|follow| tokio::spawn(follow.run(Arc::clone(&gate.policies)))));
        Ok(Self { addresses, operations, database, gate, server, stop, workers })
    }

    /// Description of the database for operators.
    pub fn database(&self) -> &str {
        &self.database.described
    }

    /// The command that opens a shell on a private database.
    pub fn shell(&self) -> Option<String> {
        self.database.shell()
    }

    /// True when a credential is required.
    pub fn wants_credentials(&self) -> bool {
        self.gate.identities.wants_credentials()
    }

    /// Counts the tenants with a retention period, and all tenants.
    pub fn with_terms(&self) -> (usize, usize) {
        self.gate.privacy.with_terms()
    }

    /// The active policy.
    pub fn policy(&self) -> Arc<Policy> {
        self.gate.server.policy(DEFAULT_TENANT)
    }

    /// Notifies these destinations, from now on.
    pub(super) fn notify(&mut self, destinations: &Destinations) {
        self.workers.extend(notifications::start(destinations, &self.gate));
    }

    /// Exports the audit log, from now on.
    pub(super) fn export_audit(&mut self, exporter: Arc<AuditExporter>) {
        self.workers.push(workers::export_audit(exporter, &self.gate));
    }

    /// Waits for `signal`, or for the database or the server to fail for good; then stops everything in order.
    pub async fn run_until(mut self, signal: impl Future<Output = ()>) -> anyhow::Result<()> {
        let failure = tokio::select! {
            () = signal => None,
            error = self.database.wait_for_failure() => {
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

    /// Lets calls in progress finish, writes queued changes, and stops a private database.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let (done, _) = oneshot::channel();
        let _ = std::mem::replace(&mut self.stop, done).send(());
        let served = (&mut self.server).await;
        self.finish_store().await;
        served.context("the server died")?.map_err(Into::into)
    }

    async fn finish_store(self) {
        for worker in self.workers {
            worker.abort();
            let _ = worker.await;
        }
        self.gate.close().await;
        self.database.stop().await;
    }
}

/// Opens the gate with its policy, and binds its listeners.
async fn judging(
    bound: Vec<BoundListener>,
    database: &Database,
    setup: &mut ServerSetup<'_>,
) -> anyhow::Result<(Arc<Gate>, Vec<Listener>)> {
    let auth = setup.auth.take();
    let setup = &*setup;
    let open = || open_gate(database, setup);
    let before = database.phase();
    let listen =
        |bound: Vec<BoundListener>| bound.into_iter().map(BoundListener::listen).collect::<Result<Vec<_>, _>>();
    let (listeners, gate) = match open().await {
        Err(error) if is_passing(&error) || database.was_restarted(before).await => {
            let waited = waited_for(database, error, open);
            grpc::starting(listen(bound)?, &setup.settings, waited).await
        }
        opened => opened.and_then(|gate| Ok((listen(bound)?, Ok(gate))))?,
    };
    let gate = gate?;
    if let Some(auth) = auth {
        gate.identities.map(auth).await.context("the tenants of --auth cannot be read")?;
    }
    if let Some((path, text)) = setup.file {
        file_watcher::apply(&gate.policies, path, text).await?;
    }
    Ok((gate, listeners))
}

/// Opens the gate once the database responds.
async fn waited_for<F>(database: &Database, first: anyhow::Error, open: impl Fn() -> F) -> anyhow::Result<Arc<Gate>>
where
    F: Future<Output = anyhow::Result<Arc<Gate>>>,
{
    let limit = RECOVERY.as_secs();
    tracing::warn!(error = %format!("{first:#}"), "the database is waited for, {limit} s at the most");
    let (clock, since) = (Clock::System, Clock::System.tick());
    loop {
        tokio::time::sleep(RECOVERY_STEP).await;
        let before = database.phase();
        match open().await {
            Err(error) if is_passing(&error) && clock.elapsed_since(since) < RECOVERY => {}
            Err(_) if database.was_restarted(before).await => {}
            done => return done,
        }
    }
}

/// True if the database does not respond: it may be recovering, or starting at the same time.
fn is_passing(error: &anyhow::Error) -> bool {
    let of_store = error.downcast_ref::<OpenError>();
    let is_away = |error: &StoreError| matches!(error, StoreError::Unreachable(_) | StoreError::Timeout(_));
    matches!(of_store, Some(OpenError::Store(error)) if is_away(error))
        || matches!(error.downcast_ref::<NoAnswer>(), Some(NoAnswer::OutOfReach(_)))
}

/// Opens a gate on the database, or in memory. It migrates the schema, and changes nothing else.
async fn open_gate(database: &Database, setup: &ServerSetup<'_>) -> anyhow::Result<Arc<Gate>> {
    let commits = setup.metrics.clone();
    let on_commit = Arc::new(move |Commit { changes, took, waited }| commits.record_commit(changes, took, waited));
    let store = match database.options.clone() {
        None => Store::in_memory(Clock::System),
        Some(options) => {
            let traced = Arc::new(BatchTracer { namespace: callgate_store::namespace(&options) });
            let settings = StoreSettings { options, on_commit, traced };
            Store::open(settings).await.context("cannot use the database")?
        }
    };
    let gate = Arc::new(Gate::new(Arc::clone(&setup.policy), store, setup.metrics.clone(), Clock::System));
    gate.server.read_halts().await.context("the halts cannot be read")?;
    gate.identities.read_credentials().await.context("it cannot be read whether there are credentials")?;
    if let Some(keys) = &setup.keys {
        gate.identities.set_tenant_keys(keys.named.clone()).await.context("the tenants of --keys cannot be read")?;
        if let Some(problem) = gate.identities.key_problems().into_iter().next() {
            bail!(problem);
        }
        for name in gate.identities.keys_of_nobody() {
            tracing::warn!(
                "--keys names the tenant {name:?}, which does not exist: it is encrypted from its making on"
            );
        }
    }
    load_stored(&gate, setup.file.is_some()).await?;
    Ok(gate)
}

/// Reads the tenants, and the active policy of each. Fails without the one of `default`, unless a file replaces it: the
/// built-in policy would permit calls that it refuses.
async fn load_stored(gate: &Gate, has_file: bool) -> anyhow::Result<()> {
    let errors = gate.identities.read_tenants().await.context("the tenants and their policies cannot be read")?;
    if errors.is_empty() || has_file {
        return Ok(());
    }
    let errors: Vec<String> = errors.iter().map(|error| format!("\n  {error}")).collect();
    let (count, errors) = (errors.len(), errors.concat());
    anyhow::bail!("the stored active policy cannot be used, {count} problem(s); --policy FILE replaces it:{errors}")
}
