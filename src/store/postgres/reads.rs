//! Batched reads for decisions.

use sqlx::postgres::PgConnectOptions;

use super::{
    batch_reader::{BatchReader, GATHERED_MAX, TREES_MAX},
    catch_up::{self, KnownTree, TreeUpdate},
    counters::{self, Counter},
    load::{self, ShardSplit, TreeQuery},
    owners,
    point_queries::{self, SessionKey, SessionTree, TreeHead},
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
pub(super) struct GatheredReads {
    pub(super) sessions: BatchReader<SessionKey, Option<SessionTree>>,
    pub(super) trees: BatchReader<TreeQuery, Option<CallTree>>,
    pub(super) since: BatchReader<KnownTree, Option<TreeUpdate>>,
    pub(super) heads: BatchReader<(TenantId, SessionId), Option<TreeHead>>,
    pub(super) ledger: BatchReader<(TenantId, SessionId, LedgerKey), Option<LedgerRow>>,
    pub(super) counters: BatchReader<Counter, i64>,
    pub(super) owners: BatchReader<owners::OwnerClaim, Option<String>>,
}

impl GatheredReads {
    pub(super) fn new(readers: &Readers, cut: ShardSplit) -> Self {
        Self {
            sessions: BatchReader::new(readers, GATHERED_MAX, cut, |conn, sought, cut| {
                Box::pin(point_queries::find(conn, sought, cut))
            }),
            trees: BatchReader::new(readers, TREES_MAX, cut, |conn, wanted, cut| {
                Box::pin(load::trees(conn, wanted, cut))
            }),
            since: BatchReader::new(readers, TREES_MAX, cut, |conn, known, cut| {
                Box::pin(catch_up::since(conn, known, cut))
            }),
            heads: BatchReader::new(readers, GATHERED_MAX, cut, |conn, trees, cut| {
                Box::pin(point_queries::heads(conn, trees, cut))
            }),
            ledger: BatchReader::new(readers, GATHERED_MAX, cut, |conn, keys, cut| {
                Box::pin(point_queries::ledger(conn, keys, cut))
            }),
            counters: BatchReader::new(readers, GATHERED_MAX, cut, |conn, keys, cut| {
                Box::pin(async move { Ok(counters::read(conn, keys, cut).await?.into_iter().map(Ok).collect()) })
            }),
            owners: BatchReader::new(readers, GATHERED_MAX, cut, |conn, asked, cut| {
                Box::pin(owners::claim_owners(conn, asked, cut))
            }),
        }
    }
}
