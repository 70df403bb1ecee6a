//! What decisions read, for many callers at once.

use std::collections::BTreeMap;

use sqlx::postgres::PgConnectOptions;

use super::{
    Store,
    catch_up::{self, Known, Since},
    counters::{self, Counter},
    gathered::{GATHERED_MAX, Gathered, TREES_MAX},
    load::{self, Cut, Wanted},
    look_up::{self, Found, Head, Sought},
    owners,
    read::Readers,
};
use crate::error::StoreError;
use callgate_core::domain::{
    budget::CounterKey,
    fingerprint::LedgerKey,
    ids::{SessionId, TenantId},
    ledger::LedgerRow,
    time::Timestamp,
    tree::CallTree,
};

/// Connections for what is gathered: few, since each statement answers many.
pub(super) const GATHERERS_MAX: usize = 6;

/// The planner's settings there: as on the writer's connection, and a statement over many parts is planned once. On a
/// distributed database each plan is for the very shards that are asked for.
pub(super) fn gatherer_options(options: PgConnectOptions, is_distributed: bool) -> PgConnectOptions {
    if is_distributed {
        return options.options([("plan_cache_mode", "force_custom_plan")]);
    }
    options.options([
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
    ])
}

/// The questions of each kind.
#[derive(Debug)]
pub(super) struct Gathers {
    sessions: Gathered<Sought, Option<Found>>,
    trees: Gathered<Wanted, Option<CallTree>>,
    since: Gathered<Known, Option<Since>>,
    heads: Gathered<(TenantId, SessionId), Option<Head>>,
    ledger: Gathered<(TenantId, SessionId, LedgerKey), Option<LedgerRow>>,
    counters: Gathered<Counter, i64>,
    pub(super) owners: Gathered<owners::Asked, Option<String>>,
}

impl Gathers {
    pub(super) fn new(readers: &Readers, cut: Cut) -> Self {
        Self {
            sessions: Gathered::new(readers, GATHERED_MAX, cut, |conn, sought, cut| {
                Box::pin(look_up::find(conn, sought, cut))
            }),
            trees: Gathered::new(readers, TREES_MAX, cut, |conn, wanted, cut| Box::pin(load::trees(conn, wanted, cut))),
            since: Gathered::new(readers, TREES_MAX, cut, |conn, known, cut| {
                Box::pin(catch_up::since(conn, known, cut))
            }),
            heads: Gathered::new(readers, GATHERED_MAX, cut, |conn, trees, cut| {
                Box::pin(look_up::heads(conn, trees, cut))
            }),
            ledger: Gathered::new(readers, GATHERED_MAX, cut, |conn, keys, cut| {
                Box::pin(look_up::ledger(conn, keys, cut))
            }),
            counters: Gathered::new(readers, GATHERED_MAX, cut, |conn, keys, cut| {
                Box::pin(async move { Ok(counters::read(conn, keys, cut).await?.into_iter().map(Ok).collect()) })
            }),
            owners: Gathered::new(readers, GATHERED_MAX, cut, |conn, asked, cut| {
                Box::pin(owners::own(conn, asked, cut))
            }),
        }
    }
}

impl Store {
    /// The tree that a session belongs to, or, when nobody has heard of the session, its parent's; none when nobody has
    /// heard of that one either.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn find(
        &self,
        tenant: TenantId,
        session: &SessionId,
        parent: Option<&SessionId>,
    ) -> Result<Option<Found>, StoreError> {
        self.gathers.sessions.ask((tenant, session.clone(), parent.cloned())).await
    }

    /// A tree as it was last committed; none when it has no event yet. With its day of birth, where that is known, it
    /// is read at once.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tree(
        &self,
        tenant: TenantId,
        root: &SessionId,
        epoch: Option<i32>,
    ) -> Result<Option<CallTree>, StoreError> {
        self.gathers.trees.ask((tenant, root.clone(), epoch, self.opener(tenant))).await
    }

    /// A tree that was read or stored before, as it was last committed: only what happened since is read. None when it
    /// has to be read anew.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn catch_up(&self, known: CallTree) -> Result<Option<CallTree>, StoreError> {
        let (version, opener) = ((known.version, known.started_at), self.opener(known.tenant));
        let since = self.gathers.since.ask((known.tenant, known.root.clone(), known.epoch, version, opener)).await?;
        Ok(since.and_then(|since| since.fold(known)))
    }

    /// The version of a tree as it was last committed, and when it began; none when it has no event yet.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn head(&self, tenant: TenantId, root: &SessionId) -> Result<Option<(u64, Timestamp)>, StoreError> {
        let head = self.gathers.heads.ask((tenant, root.clone())).await?;
        Ok(head.map(|(version, _, started_at)| (version, started_at)))
    }

    /// The ledger's rows of writes that a tree asks for, at once; none where there was no permit yet, or is no key.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn ledger_rows(
        &self,
        tenant: TenantId,
        root: &SessionId,
        keys: Vec<Option<LedgerKey>>,
    ) -> Result<Vec<Option<LedgerRow>>, StoreError> {
        let wanted = keys.iter().flatten().map(|key| (tenant, root.clone(), *key)).collect();
        let mut rows = self.gathers.ledger.ask_all(wanted).await?.into_iter();
        Ok(keys.into_iter().map(|key| key.and_then(|_| rows.next().flatten())).collect())
    }

    /// Shared counters, each with its limit: as last seen, and read where none was seen, or where one that is not far
    /// from its limit is old.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn counters(
        &self,
        tenant: TenantId,
        keys: BTreeMap<CounterKey, u64>,
    ) -> Result<BTreeMap<CounterKey, u64>, StoreError> {
        if let Some(known) = self.counters.known(tenant, &keys) {
            return Ok(known);
        }
        let keys: Vec<Counter> = keys.into_keys().map(|key| (tenant, key)).collect();
        let used = self.gathers.counters.ask_all(keys.clone()).await?;
        self.counters.learn(&keys, &used);
        let used = used.into_iter().map(|used| u64::try_from(used).unwrap_or(0));
        Ok(keys.into_iter().map(|(_, key)| key).zip(used).collect())
    }
}
