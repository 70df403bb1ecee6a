//! Fleet overview queries. Each reads little, by an index: final rows are counted once, and the caller keeps the
//! position to continue from.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store,
    codes::{DENY, REUSE, STOP, SUCCESS},
    decode::{LoadedRow, at, count, decode},
    row::code,
};
use crate::error::StoreError;
use callgate_core::domain::{
    budget::{BudgetScope, Dimension},
    failure::FailureKind,
    finding::Decision,
    fleet::{ApprovalLifetime, BudgetNearLimit, Calling, MINUTE_MS, NEAR_PERCENT, RefusalSavings, ToolTrouble},
    health::FAILURES_FEW,
    ids::TenantId,
    time::Timestamp,
};

/// Maximum number of refusals per query, because each may be joined with the call that it repeats.
const REFUSALS_MAX: i64 = 5_000;
/// Maximum number of reported tools and budgets.
const TOLD_MAX: i64 = 50;

/// Decisions within a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionsPerMinute {
    /// Start of the minute.
    pub minute: Timestamp,
    pub decision: Decision,
    pub count: u64,
    /// Those of the last minute before the query.
    pub lately: u64,
}

/// Savings by refusals in a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusals {
    /// By start of the minute; minutes without a refusal are omitted.
    pub saved: BTreeMap<Timestamp, RefusalSavings>,
    /// End of the evaluated period, earlier than requested with many refusals.
    pub until: Timestamp,
}

impl Store {
    /// Judgments from a minute on, up to `now`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn decisions_per_minute(
        &self,
        tenant: TenantId,
        from: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<DecisionsPerMinute>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| read_decisions(conn, tenant, (from, now)).await).await
    }

    /// Savings by refusals in a half-open period.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn refusals(&self, tenant: TenantId, from: Timestamp, until: Timestamp) -> Result<Refusals, StoreError> {
        self.readers.read_of(&[tenant], async |conn| refusals(conn, tenant, (from, until)).await).await
    }

    /// Approval requests open at some time since.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn asked_since(&self, tenant: TenantId, since: Timestamp) -> Result<Vec<ApprovalLifetime>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| read_approval_lifetimes(conn, tenant, since).await).await
    }

    /// Open calls of the tenant, with their trees.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn calling(&self, tenant: TenantId) -> Result<Calling, StoreError> {
        self.readers.read_of(&[tenant], async |conn| calling(conn, tenant).await).await
    }

    /// Unhealthy tools of the tenant.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tool_troubles(&self, tenant: TenantId) -> Result<Vec<ToolTrouble>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| read_tool_troubles(conn, tenant).await).await
    }

    /// Call trees active within the last hour; and budgets near their limit, the nearest first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn near_their_end(
        &self,
        tenant: TenantId,
        limits: &[(BudgetScope, Dimension, u64)],
        today: i32,
    ) -> Result<(u64, Vec<BudgetNearLimit>), StoreError> {
        let read = async |conn: &mut PgConnection| {
            let active = "select count(*) from call_tree where tenant_id = $1 and last_at > now() - interval '1 hour'";
            let active: i64 = sqlx::query_scalar(active).bind(tenant.0).fetch_one(&mut *conn).await?;
            Ok((u64::try_from(active).unwrap_or(0), near(conn, tenant, limits, today).await?))
        };
        self.readers.read_of(&[tenant], read).await
    }

    /// Number of budgets near their limit, and of those used up, by tenant and scope; without one they are omitted.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn count_near_their_end(&self, limits: &[TenantLimit], today: i32) -> Result<NearCounts, StoreError> {
        if limits.is_empty() {
            return Ok(NearCounts::new());
        }
        self.slow.read(async |conn| count_near(conn, limits, today).await).await
    }
}

/// Budgets near their limit, and those used up.
type NearCounts = BTreeMap<(TenantId, BudgetScope), (u64, u64)>;

/// Limit of a tenant's policy.
type TenantLimit = (TenantId, (BudgetScope, Dimension, u64));

async fn read_decisions(
    conn: &mut PgConnection,
    tenant: TenantId,
    (from, now): (Timestamp, Timestamp),
) -> LoadedRow<Vec<DecisionsPerMinute>> {
    let rows = sqlx::query(
        "select floor(extract(epoch from c.at) / 60)::bigint as minute, c.decision, count(*) as calls,
           count(*) filter (where c.at > to_timestamp($3 / 1000.0) - interval '1 minute') as lately
         from call c
         where c.tenant_id = $1 and not c.observed and c.at >= to_timestamp($2 / 1000.0)
         group by 1, 2",
    );
    let rows = rows.bind(tenant.0).bind(from.as_millis()).bind(now.as_millis()).fetch_all(conn).await?;
    let judged = |row: &PgRow| {
        Ok(DecisionsPerMinute {
            minute: Timestamp::from_millis(row.try_get::<i64, _>("minute")? * MINUTE_MS),
            decision: decode(row, "decision")?,
            count: count(row, "calls")?,
            lately: count(row, "lately")?,
        })
    };
    rows.iter().map(judged).collect()
}

/// A repeated request after a refusal counts once. The repeated call is in the same tree, except for tools with a wider
/// share, whose cost is unknown here.
async fn refusals(
    conn: &mut PgConnection,
    tenant: TenantId,
    (from, until): (Timestamp, Timestamp),
) -> LoadedRow<Refusals> {
    let cut: Option<i64> = sqlx::query_scalar(AssertSqlSafe(format!(
        "select (extract(epoch from c.at) * 1000)::bigint from call c
         where c.tenant_id = $1 and c.decision >= {REUSE} and not c.observed
           and c.at >= to_timestamp($2 / 1000.0) and c.at < to_timestamp($3 / 1000.0)
         order by c.at offset $4 limit 1"
    )))
    .bind(tenant.0)
    .bind(from.as_millis())
    .bind(until.as_millis())
    .bind(REFUSALS_MAX)
    .fetch_optional(&mut *conn)
    .await?;
    let until = cut.map_or(until, |cut| until.min(Timestamp::from_millis(cut).max(from.plus_ms(1))));
    let rows = sqlx::query(AssertSqlSafe(format!(
        // The repeated call is joined by columns: row-level security prevents index scans on other expressions.
        "with refused as materialized (
           select c.shard, c.epoch, c.at, c.decision, c.reserved_micros, r.first ->> 0 as session_id,
             r.first ->> 1 as call_id
           from call c
           left join lateral (
             select jsonb_path_query_first(c.findings, '$[*].reuse') as first where c.decision = {REUSE}) r on true
           where c.tenant_id = $1 and c.decision >= {REUSE} and not c.observed
             and c.at >= to_timestamp($2 / 1000.0) and c.at < to_timestamp($3 / 1000.0)
             and (c.round = 1 or not exists (
               select from call e where e.shard = c.shard and e.tenant_id = c.tenant_id and e.epoch = c.epoch
                 and e.session_id = c.session_id and e.call_id = c.call_id and e.round < c.round
                   and e.decision >= {REUSE})))
         select floor(extract(epoch from c.at) / 60)::bigint as minute,
           count(*) filter (where c.decision = {REUSE}) as reused,
             count(*) filter (where c.decision = {DENY}) as denied,
           count(*) filter (where c.decision = {STOP}) as stopped,
           count(coalesce(x.cost_micros, nullif(c.reserved_micros, 0))) as priced,
           sum(coalesce(x.cost_micros, nullif(c.reserved_micros, 0)))::bigint as cost_micros,
           count(x.tokens) as with_tokens, sum(x.tokens)::bigint as tokens
         from refused c
         left join lateral (
           select o.cost_micros, case when num_nonnulls(o.input_tokens, o.output_tokens, o.cache_read_tokens,
             o.cache_write_tokens) > 0 then coalesce(o.input_tokens, 0) + coalesce(o.output_tokens, 0)
             + coalesce(o.cache_read_tokens, 0) + coalesce(o.cache_write_tokens, 0) end as tokens
           from call p
           join outcome o on o.shard = p.shard and o.tenant_id = p.tenant_id and o.epoch = p.epoch
             and o.session_id = p.session_id and o.permit_seq = p.seq
           where p.shard = c.shard and p.tenant_id = $1 and p.epoch = c.epoch
             and p.session_id = c.session_id and p.call_id = c.call_id and p.attempt is not null
               and o.status = {SUCCESS}
           order by p.round desc, o.seq desc
           limit 1) x on true
         group by 1"
    )));
    let rows = rows.bind(tenant.0).bind(from.as_millis()).bind(until.as_millis()).fetch_all(conn).await?;
    let saved = |row: &PgRow| {
        let saved = RefusalSavings {
            reused: count(row, "reused")?,
            denied: count(row, "denied")?,
            stopped: count(row, "stopped")?,
            priced: count(row, "priced")?,
            cost_micros: count(row, "cost_micros")?,
            with_tokens: count(row, "with_tokens")?,
            tokens: count(row, "tokens")?,
        };
        Ok((Timestamp::from_millis(row.try_get::<i64, _>("minute")? * MINUTE_MS), saved))
    };
    Ok(Refusals { saved: rows.iter().map(saved).collect::<LoadedRow<_>>()?, until })
}

/// Later rounds of a call repeat its approval request; the first has its time.
async fn read_approval_lifetimes(
    conn: &mut PgConnection,
    tenant: TenantId,
    since: Timestamp,
) -> LoadedRow<Vec<ApprovalLifetime>> {
    let rows = sqlx::query(
        "select q.session_id, q.asked_ms, least(q.expires_ms, (
             select (extract(epoch from min(e.at)) * 1000)::bigint from session_event e
             where e.shard = q.shard and e.tenant_id = $1 and e.root_id = q.root_id and e.epoch = q.epoch
               and e.kind in ('answered', 'withdrawn') and e.detail ->> 'approval_id' = q.approval_id)) as until_ms
         from (
           select c.shard, c.root_id, c.epoch, c.session_id, c.approval_id,
             (extract(epoch from min(c.at)) * 1000)::bigint as asked_ms,
             (extract(epoch from max(c.approval_expires_at)) * 1000)::bigint as expires_ms
           from call c
           where c.tenant_id = $1 and c.approval_id is not null
             and c.approval_expires_at > to_timestamp($2 / 1000.0)
           group by 1, 2, 3, 4, 5) q",
    );
    let rows = rows.bind(tenant.0).bind(since.as_millis()).fetch_all(conn).await?;
    let one = |row: &PgRow| {
        Ok(ApprovalLifetime {
            session: row.try_get("session_id")?,
            at: at(row, "asked_ms")?,
            until: at(row, "until_ms")?,
        })
    };
    rows.iter().map(one).collect()
}

async fn calling(conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<Calling> {
    // Open calls have a sweep time, which is indexed.
    let row = sqlx::query(
        "select sum(open_calls)::bigint as open_calls, count(*) as trees from call_tree
         where tenant_id = $1 and due is not null and open_calls > 0",
    );
    let row = row.bind(tenant.0).fetch_one(conn).await?;
    Ok(Calling { open_calls: count(&row, "open_calls")?, trees: count(&row, "trees")?, active_trees: 0 })
}

async fn read_tool_troubles(conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<Vec<ToolTrouble>> {
    let rows = sqlx::query(
        "select h.tool, h.failures, (extract(epoch from h.failing_since) * 1000)::bigint as failing_ms,
           h.cooldown_failure, (extract(epoch from h.cooldown_until) * 1000)::bigint as until_ms
         from tool_health h
         where h.tenant_id = $1 and h.changed_at > now() - interval '1 hour'
           and (h.cooldown_failure is not null or h.failures > $2)
         order by coalesce(h.failing_since, h.cooldown_since), h.tool limit $3",
    );
    let few = i32::try_from(FAILURES_FEW).unwrap_or(i32::MAX);
    let rows = rows.bind(tenant.0).bind(few).bind(TOLD_MAX).fetch_all(conn).await?;
    let one = |row: &PgRow| {
        let failure: Option<FailureKind> = decode(row, "cooldown_failure")?;
        Ok(ToolTrouble {
            tool: row.try_get("tool")?,
            failures: decode(row, "failures")?,
            failing_since: decode(row, "failing_ms")?,
            cooldown: failure.zip(decode(row, "until_ms")?),
        })
    };
    rows.iter().map(one).collect()
}

/// Budgets near their limit, raises included, as `near`. The limits are those of many tenants.
const NEAR: &str = "with allowed as (
       select * from unnest($1::bigint[], $2::int2[], $3::int2[], $4::bigint[])
         as a(tenant_id, scope, dimension, allowed)),
     used as (
       select a.tenant_id, a.scope, n.agent_id as name, a.dimension, n.used, a.allowed, null::smallint as shard,
         null::date as epoch
       from allowed a
       join counter n on n.tenant_id = a.tenant_id and n.day = date '1970-01-01' + $5::integer and n.tier = ''
         and n.dimension = a.dimension and (n.agent_id = '') = (a.scope = $6)
       where a.scope <> $7
       union all
       select a.tenant_id, a.scope, t.root_id, a.dimension, u.used, a.allowed, t.shard, t.epoch from call_tree t
       cross join lateral (values (0, t.steps), (1, t.calls), (2, t.cost_micros + t.reserved_micros), (3, t.tokens))
         u(dimension, used)
       join allowed a on a.tenant_id = t.tenant_id and a.dimension = u.dimension and a.scope = $7
       where t.tenant_id = any($1) and t.last_at > now() - interval '1 hour'),
     raised as (
       select u.tenant_id, u.scope, u.name, u.dimension, u.used, u.allowed + coalesce(r.extra, 0) as allowed from used u
       left join lateral (
         select (e.detail ->> 'extra')::bigint as extra from session_event e
         where e.shard = u.shard and e.tenant_id = u.tenant_id and e.root_id = u.name and e.epoch = u.epoch
           and e.kind = 'revoked' and e.detail ->> 'scope' = 'call_tree'
           and e.detail ->> 'dimension' = ($9::text[])[u.dimension + 1]
         order by e.seq desc limit 1) r on true
       where u.used::numeric * 100 >= u.allowed::numeric * $8),
     near as (select * from raised where used::numeric * 100 >= allowed::numeric * $8)";

/// Runs [`NEAR`] over those limits, with a following statement.
async fn near_rows(
    conn: &mut PgConnection,
    limits: &[TenantLimit],
    today: i32,
    followed: &str,
) -> LoadedRow<Vec<PgRow>> {
    let sql = format!("{NEAR} {followed}");
    let (mut tenants, mut scopes, mut dimensions, mut allowed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (tenant, (scope, dimension, limit)) in limits {
        tenants.push(tenant.0);
        scopes.push(code(&BudgetScope::ALL, scope));
        dimensions.push(code(&Dimension::ALL, dimension));
        allowed.push(i64::try_from(*limit).unwrap_or(i64::MAX));
    }
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(tenants)
        .bind(scopes)
        .bind(dimensions)
        .bind(allowed)
        .bind(today)
        .bind(code(&BudgetScope::ALL, &BudgetScope::Tenant))
        .bind(code(&BudgetScope::ALL, &BudgetScope::CallTree))
        .bind(i64::try_from(NEAR_PERCENT).unwrap_or(100));
    Ok(rows.bind(Dimension::ALL.map(Dimension::as_str).as_slice()).fetch_all(conn).await?)
}

async fn near(
    conn: &mut PgConnection,
    tenant: TenantId,
    limits: &[(BudgetScope, Dimension, u64)],
    today: i32,
) -> LoadedRow<Vec<BudgetNearLimit>> {
    let limits: Vec<TenantLimit> = limits.iter().map(|limit| (tenant, *limit)).collect();
    let listed = format!(
        "select * from near order by used::float8 / greatest(allowed, 1) desc, scope desc, name limit {TOLD_MAX}"
    );
    let rows = near_rows(conn, &limits, today, &listed).await?;
    let one = |row: &PgRow| {
        Ok(BudgetNearLimit {
            scope: decode(row, "scope")?,
            name: row.try_get("name")?,
            dimension: decode(row, "dimension")?,
            used: count(row, "used")?,
            limit: count(row, "allowed")?,
        })
    };
    rows.iter().map(one).collect()
}

async fn count_near(conn: &mut PgConnection, limits: &[TenantLimit], today: i32) -> LoadedRow<NearCounts> {
    let counted = "select tenant_id, scope, count(*) as budgets, count(*) filter (where used >= allowed) as used_up
                   from near group by tenant_id, scope";
    let rows = near_rows(conn, limits, today, counted).await?;
    let one = |row: &PgRow| {
        let of = (TenantId(row.try_get("tenant_id")?), decode(row, "scope")?);
        Ok((of, (count(row, "budgets")?, count(row, "used_up")?)))
    };
    rows.iter().map(one).collect()
}
