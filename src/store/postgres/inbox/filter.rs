//! SQL conditions of call filters, and the choice of call trees to scan.

use sqlx::{PgConnection, Postgres, Row as _, postgres::PgArguments, query::Query};

use super::super::{
    codes::{RUNNING, UNKNOWN},
    decode::LoadedRow,
    row::code,
    sealed::Opener,
};
use crate::sealing::MARK;
use callgate_core::domain::{
    calls::CallFilter,
    failure::FailureKind,
    finding::Decision,
    ids::{SessionId, TenantId},
    outcome::OutcomeStatus,
    shard::Shard,
};

/// Maximum number of call trees per query.
pub(super) const TREES_MAX: usize = 2_000;
/// Maximum number of calls, beside those of the first tree.
pub(super) const CALLS_MAX: u64 = 8_000;

/// A tree to scan.
#[derive(Debug, Clone)]
pub(super) struct SearchedTree {
    pub(super) shard: i16,
    pub(super) root: String,
    pub(super) last_us: i64,
    steps: u64,
}

impl SearchedTree {
    /// A single known tree, regardless of its activity.
    pub(super) fn alone(shard: Shard, root: &SessionId) -> Self {
        Self { shard: shard.0, root: root.to_string(), last_us: 0, steps: 0 }
    }
}

/// Selection of trees: after a position, active since a time, and of these roots, if known.
#[derive(Debug, Default)]
pub(super) struct Trees<'a> {
    pub(super) after: Option<(i64, &'a str)>,
    pub(super) since_ms: Option<i64>,
    pub(super) until_ms: Option<i64>,
    pub(super) roots: Option<Vec<String>>,
    /// With a call without an outcome.
    pub(super) open: bool,
}

impl Trees<'_> {
    /// The most recently active trees, up to the maximum; and whether there are more.
    ///
    /// All rows of a tenant's trees are read, which are short: an index by activity would be written with every event.
    pub(super) async fn find(
        &self,
        conn: &mut PgConnection,
        tenant: TenantId,
        max: usize,
    ) -> LoadedRow<(Vec<SearchedTree>, bool)> {
        let query = sqlx::query(
            "select t.shard, t.root_id, (extract(epoch from t.last_at) * 1000000)::bigint as last_us, t.steps
             from call_tree t
             where t.tenant_id = $1 and ($2::bigint is null
               or t.last_at < timestamptz 'epoch' + $2 * interval '1 microsecond'
               or (t.last_at = timestamptz 'epoch' + $2 * interval '1 microsecond' and t.root_id >= $3))
               and ($4::bigint is null or t.last_at >= to_timestamp($4 / 1000.0))
               and ($5::bigint is null or t.started_at < to_timestamp($5 / 1000.0))
               and ($6::text[] is null or t.root_id = any($6)) and (not $7 or t.open_calls > 0)
             order by t.last_at desc, t.root_id limit $8",
        )
        .bind(tenant.0)
        .bind(self.after.map(|(at, _)| at))
        .bind(self.after.map(|(_, root)| root))
        .bind(self.since_ms)
        .bind(self.until_ms)
        .bind(&self.roots)
        .bind(self.open);
        let rows = query.bind(i64::try_from(max + 1).unwrap_or(i64::MAX)).fetch_all(conn).await?;
        let (mut trees, mut calls) = (Vec::with_capacity(rows.len()), 0);
        for row in &rows {
            let tree = SearchedTree {
                shard: row.try_get("shard")?,
                root: row.try_get("root_id")?,
                last_us: row.try_get("last_us")?,
                steps: u64::try_from(row.try_get::<i64, _>("steps")?).unwrap_or(0),
            };
            calls += tree.steps;
            if trees.len() == max || !trees.is_empty() && calls > CALLS_MAX {
                return Ok((trees, true));
            }
            trees.push(tree);
        }
        Ok((trees, false))
    }
}

/// Condition on a call `c`, its first judgment. It uses $2 to $11; $1 is the tenant.
pub(super) fn condition() -> String {
    let same = |x: &str| {
        format!(
            "{x}.shard = c.shard and {x}.tenant_id = c.tenant_id and {x}.epoch = c.epoch
             and {x}.session_id = c.session_id"
        )
    };
    format!(
        "c.round = 1 and ($2::text is null or c.agent_id = $2) and ($3::text is null or c.tool = $3)
         and (($4::int2 is null and $5::text is null and $6::text is null) or exists (
           select from call x where {x} and x.call_id = c.call_id and ($4 is null or x.decision = $4)
             and ($5 is null or x.rule = $5) and ($6 is null or x.reason = $6)))
         and (($7::int2 is null and $8::int2 is null) or exists (
           select from (
             select x.seq, x.lease_until from call x where {x} and x.call_id = c.call_id and x.attempt is not null
             order by x.round desc limit 1) p
           left join lateral (
             select y.status, y.failure, y.lease_until from outcome y where {y} and y.permit_seq = p.seq
             order by (y.status = {RUNNING}), y.seq desc limit 1) o on true
           where ($7 is null or $7 = {status}) and ($8 is null or o.failure = $8)))
         and ($9::text is null or position($9 in lower(c.call_id)) > 0 or position($9 in lower(c.session_id)) > 0
           or (position($9 in lower(c.arguments)) > 0 and c.arguments not like '{MARK}%'))
         and ($10::bigint is null or c.at >= to_timestamp($10 / 1000.0))
         and ($11::bigint is null or c.at < to_timestamp($11 / 1000.0))",
        x = same("x"),
        y = same("y"),
        status = status(),
    )
}

/// Outcome of a permit `p` with the last report `o`.
pub(super) fn status() -> String {
    format!(
        "case when o.status > {RUNNING} then o.status
           when greatest(p.lease_until, o.lease_until) > now() then {RUNNING} when p.seq is not null then {UNKNOWN} end"
    )
}

pub(super) type FilterQuery<'q> = Query<'q, Postgres, PgArguments>;

/// Binds $1 to $11.
pub(super) fn bind_filter<'q>(sql: String, tenant: TenantId, filter: &'q CallFilter) -> FilterQuery<'q> {
    let query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(filter.agent.as_deref())
        .bind(filter.tool.as_deref())
        .bind(filter.decision.map(|d| code(&Decision::ALL, &d)))
        .bind(filter.rule.as_deref())
        .bind(filter.reason.as_deref())
        .bind(filter.status.map(|s| code(&OutcomeStatus::ALL, &s)))
        .bind(filter.failure.map(|kind| code(&FailureKind::ALL, &kind)))
        .bind(filter.text.as_deref().map(str::to_lowercase));
    query.bind(filter.since.map(|at| at.as_millis())).bind(filter.until.map(|at| at.as_millis()))
}

/// True for a text search where arguments are encrypted.
pub(super) fn is_sealed(filter: &CallFilter, opener: &Opener) -> bool {
    filter.text.is_some() && !opener.is_plain()
}
