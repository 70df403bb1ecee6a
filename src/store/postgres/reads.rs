//! Batched reads for decisions.

use sqlx::postgres::PgConnectOptions;

use super::{
    catch_up::{self, Known, Since},
    counters::{self, Counter},
    gathered::{GATHERED_MAX, Gathered, TREES_MAX},
    load::{self, Cut, Wanted},
    look_up::{self, Found, Head, Sought},
    owners,
    read::Readers,
};
use callgate_core::domain::{
    fingerprint::LedgerKey,
    ids::{SessionId, TenantId},
    ledger::LedgerRow,
    tree::CallTree,
};

/// Maximum connections of batched reads: few, because each statement serves many.
pub(super) const GATHERERS_MAX: usize = 6;

/// Planner settings for batched reads: those of the writer, and one plan for statements over many parts. On a
/// distributed database each plan is for the requested shards.
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

/// Queues of each kind.
#[derive(Debug)]
pub(super) struct Gathers {
    pub(super) sessions: Gathered<Sought, Option<Found>>,
    pub(super) trees: Gathered<Wanted, Option<CallTree>>,
    pub(super) since: Gathered<Known, Option<Since>>,
    pub(super) heads: Gathered<(TenantId, SessionId), Option<Head>>,
    pub(super) ledger: Gathered<(TenantId, SessionId, LedgerKey), Option<LedgerRow>>,
    pub(super) counters: Gathered<Counter, i64>,
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
