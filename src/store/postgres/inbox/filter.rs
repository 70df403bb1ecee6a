//! SQL conditions of call filters, and the choice of call trees to scan.

use sqlx::{
    PgConnection, Postgres, Row as _,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::super::{
    codes::{REUSE, RUNNING, UNKNOWN},
    decode::{LoadedRow, count},
    row::code,
    sealed::Opener,
};
use super::names::NameSearch;
use crate::sealing::MARK;
use callgate_core::domain::{
    calls::{CallFilter, SessionOrder},
    failure::FailureKind,
    finding::Decision,
    ids::{SessionId, TenantId},
    inbox::SessionPlace,
    outcome::OutcomeStatus,
    shard::Shard,
};

/// Maximum number of call trees that one statement chooses.
pub(super) const TREES_MAX: usize = 2_000;
/// Maximum number of calls that one statement searches, beside those of the first tree.
pub(super) const CALLS_MAX: u64 = 8_000;

/// A tree to scan.
#[derive(Debug, Clone)]
pub(super) struct SearchedTree {
    pub(super) shard: i16,
    pub(super) root: String,
    pub(super) key: i64,
    steps: u64,
}

impl SearchedTree {
    /// Position behind its last session.
    pub(super) fn end(&self) -> SessionPlace {
        SessionPlace { key: self.key, root: self.root.clone(), depth: i32::MAX, session: String::new() }
    }

    /// A single known tree, regardless of its activity.
    pub(super) fn alone(shard: Shard, root: &SessionId) -> Self {
        Self { shard: shard.0, root: root.to_string(), key: 0, steps: 0 }
    }
}

/// Number of the first trees whose calls fit into one statement; at most `max`.
pub(super) fn searchable(trees: &[SearchedTree], max: usize) -> usize {
    let mut calls = 0;
    let fits = |(no, tree): &(usize, &SearchedTree)| {
        calls += tree.steps;
        *no == 0 || calls <= CALLS_MAX
    };
    trees.iter().take(max).enumerate().take_while(fits).count()
}

/// The total of an order, a value `$2` to compare it with, and the total as an integer.
const fn total(order: SessionOrder) -> (&'static str, &'static str, &'static str) {
    match order {
        SessionOrder::Latest => (
            "t.last_at",
            "timestamptz 'epoch' + $2::bigint * interval '1 microsecond'",
            "(extract(epoch from t.last_at) * 1000000)::bigint",
        ),
        SessionOrder::Cost => ("t.cost_micros", "$2::bigint", "t.cost_micros"),
        SessionOrder::Calls => ("t.calls", "$2::bigint", "t.calls"),
        SessionOrder::Duration => (
            "(t.last_at - t.started_at)",
            "$2::bigint * interval '1 microsecond'",
            "(extract(epoch from t.last_at - t.started_at) * 1000000)::bigint",
        ),
    }
}

/// Selection of trees: after a position, active since a time, and of these roots, if known.
#[derive(Debug, Default)]
pub(super) struct Trees {
    pub(super) order: SessionOrder,
    pub(super) after: Option<(i64, String)>,
    pub(super) since_ms: Option<i64>,
    pub(super) until_ms: Option<i64>,
    pub(super) roots: Option<Vec<String>>,
    /// With a call without an outcome.
    pub(super) open: bool,
    /// Active within a multirange of times.
    pub(super) times: Option<String>,
}

impl Trees {
    /// Condition on a tree `t`. It uses $1 to $8.
    fn condition(&self) -> String {
        let (total, bound, _) = total(self.order);
        format!(
            "t.tenant_id = $1 and ($2::bigint is null or {total} < {bound} or ({total} = {bound} and t.root_id >= $3))
             and ($4::bigint is null or t.last_at >= to_timestamp($4 / 1000.0))
             and ($5::bigint is null or t.started_at < to_timestamp($5 / 1000.0))
             and ($6::text[] is null or t.root_id = any($6)) and (not $7 or t.open_calls > 0)
             and ($8::text is null or $8::tstzmultirange && tstzrange(t.started_at, t.last_at, '[]'))"
        )
    }

    fn bind(&self, sql: String, tenant: TenantId) -> FilterQuery<'_> {
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(tenant.0).bind(self.after.as_ref().map(|(at, _)| *at));
        let query =
            query.bind(self.after.as_ref().map(|(_, root)| root.as_str())).bind(self.since_ms).bind(self.until_ms);
        query.bind(&self.roots).bind(self.open).bind(self.times.as_deref())
    }

    /// The number of trees from here on.
    pub(super) async fn count(&self, conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<u64> {
        let sql = format!("select count(*) as trees from call_tree t where {}", self.condition());
        count(&self.bind(sql, tenant).fetch_one(conn).await?, "trees")
    }

    /// The first trees, up to the maximum; and whether there are more.
    ///
    /// All rows of a tenant's trees are read, which are short: an index by a total would be written with every event.
    pub(super) async fn find(
        &self,
        conn: &mut PgConnection,
        tenant: TenantId,
        max: usize,
    ) -> LoadedRow<(Vec<SearchedTree>, bool)> {
        let (total, _, key) = total(self.order);
        let sql = format!(
            "select t.shard, t.root_id, {key} as key, t.steps from call_tree t where {}
             order by {total} desc, t.root_id limit $9",
            self.condition()
        );
        let query = self.bind(sql, tenant).bind(i64::try_from(max + 1).unwrap_or(i64::MAX));
        let rows = query.fetch_all(conn).await?;
        let tree = |row: &PgRow| {
            Ok(SearchedTree {
                shard: row.try_get("shard")?,
                root: row.try_get("root_id")?,
                key: row.try_get("key")?,
                steps: count(row, "steps")?,
            })
        };
        let trees = rows.iter().take(max).map(tree).collect::<LoadedRow<_>>()?;
        Ok((trees, rows.len() > max))
    }
}

/// Condition on a call `c`, its first judgment. It uses $2 to $14; $1 is the tenant.
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
         and ($11::bigint is null or c.at < to_timestamp($11 / 1000.0)) and ($12::text is null or c.user_id = $12)
         and (not $13 or exists (
           select from call x where {x} and x.call_id = c.call_id and x.decision >= {REUSE}))
         and ($14::text is null or lower(c.agent_id collate \"C\") like $14 or lower(c.user_id collate \"C\") like $14
           or lower(c.tool collate \"C\") like $14)",
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

/// Binds $1 to $14.
pub(super) fn bind_filter<'q>(
    sql: String,
    tenant: TenantId,
    filter: &'q CallFilter,
    names: &'q NameSearch,
) -> FilterQuery<'q> {
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
    let query = query.bind(filter.since.map(|at| at.as_millis())).bind(filter.until.map(|at| at.as_millis()));
    query.bind(filter.user.as_deref()).bind(filter.refused).bind(names.pattern.as_deref())
}

/// True for a text search where arguments are encrypted.
pub(super) fn is_sealed(filter: &CallFilter, opener: &Opener) -> bool {
    filter.text.is_some() && !opener.is_plain()
}
