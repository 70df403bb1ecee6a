//! Queue of notifications, in the table `approval_notice`, and the reads that find their events. One replica claims a
//! notification at a time. Times are the database's.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{Row as _, postgres::PgRow};

use super::{
    Store,
    decode::{LoadedRow, at, count, decode},
};
use crate::error::StoreError;
use callgate_core::domain::{audit::AuditOperation, failure::FailureKind, ids::TenantId, time::Timestamp};

/// Audit entries and expired requests that are read at once.
const EVENTS_MAX: i64 = 1_000;
/// Characters of a stored problem.
const PROBLEM_MAX: usize = 500;
/// Newest audit entries in which the first read looks for those of its period.
const FIRST_ENTRIES_MAX: i64 = 10_000;

/// A notification to queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNotification {
    /// Unique in the tenant.
    pub key: String,
    /// Name of the destination.
    pub destination: String,
    /// Name of the event.
    pub event: &'static str,
    /// Subject, as JSON.
    pub subject: String,
    /// No attempt is made from then on.
    pub expires_at: Timestamp,
}

/// State of a destination's notifications of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotificationQueue {
    /// Not accepted yet.
    pub waiting: u64,
    /// Those among them that failed.
    pub retrying: u64,
    /// Not accepted before their expiry.
    pub failed: u64,
    pub delivered: u64,
    /// Problem of the last failed attempt, with its time.
    pub last_error: Option<(String, Timestamp)>,
}

/// A claimed notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedNotification {
    /// Its tenant.
    pub tenant: TenantId,
    /// As in [`NewNotification`], and the same below.
    pub key: String,
    /// Name of the event.
    pub event: String,
    /// Subject, as JSON.
    pub subject: String,
    /// Number of attempts, this one included.
    pub attempts: u32,
}

/// An entry of the audit log that destinations are notified of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedEvent {
    /// Number in the tenant's log.
    pub number: i64,
    /// Kind.
    pub kind: String,
    /// Actor; none where it was erased.
    pub by: Option<String>,
    /// Description; none where it was erased.
    pub what: Option<String>,
    /// Time.
    pub at: Timestamp,
}

/// An open circuit breaker of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCircuit {
    /// Its tenant.
    pub tenant: TenantId,
    /// The tool.
    pub tool: String,
    /// Failure kind that opened it.
    pub failure: FailureKind,
    /// First failure since the last success.
    pub since: Timestamp,
    /// End of the open state.
    pub until: Timestamp,
}

/// A tenant in which destinations may have something to be notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantActivity {
    /// The tenant.
    pub tenant: TenantId,
    /// Number of the newest entry of its audit log; 0 without one.
    pub audited: i64,
    /// True when an approval request is open, or expired lately.
    pub has_requests: bool,
}

impl Store {
    /// The state of these tenants, in one statement. Requests that expired within the last `age` count.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tenant_activity(
        &self,
        tenants: &[TenantId],
        age: Duration,
    ) -> Result<Vec<TenantActivity>, StoreError> {
        let rows = sqlx::query(
            "select t.id, coalesce(h.number, 0) as audited, exists (select from call c where c.tenant_id = t.id
               and c.approval_id is not null and c.approval_expires_at > now() - $2 * interval '1 second') as asked
             from unnest($1::bigint[]) t (id) left join audit_head h on h.tenant_id = t.id",
        );
        let rows = rows.bind(tenants.iter().map(|tenant| tenant.0).collect::<Vec<i64>>()).bind(seconds(age));
        let activity = |row: &PgRow| {
            Ok(TenantActivity {
                tenant: TenantId(row.try_get("id")?),
                audited: row.try_get("audited")?,
                has_requests: row.try_get("asked")?,
            })
        };
        self.readers.read(async |conn| rows.fetch_all(conn).await?.iter().map(activity).collect()).await
    }

    /// Queues notifications; those that are queued already are left as they are.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: they may be queued.
    pub async fn queue_notifications(&self, tenant: TenantId, new: &[NewNotification]) -> Result<(), StoreError> {
        let texts = |of: fn(&NewNotification) -> &str| new.iter().map(of).collect::<Vec<&str>>();
        let insert = sqlx::query(
            "insert into approval_notice
               (tenant_id, approval_id, destination, event, subject, attempts, claimed_until, next_at, expires_at)
             select $1, q.key, q.destination, q.event, q.subject, 0, now(), now(), to_timestamp(q.ends / 1000.0)
               from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
                 as q (key, destination, event, subject, ends)
             order by q.key
             on conflict (tenant_id, approval_id) do nothing",
        );
        let insert = insert.bind(tenant.0).bind(texts(|one| &one.key)).bind(texts(|one| &one.destination));
        let insert = insert.bind(texts(|one| one.event)).bind(texts(|one| &one.subject));
        let insert = insert.bind(new.iter().map(|one| one.expires_at.as_millis()).collect::<Vec<i64>>());
        self.readers.read(async |conn| Ok(insert.execute(conn).await.map(drop)?)).await
    }

    /// Claims the first `max` due notifications of a destination, for the time `lasts`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: none was claimed, or the result is unknown.
    pub async fn claim_notifications(
        &self,
        destination: &str,
        max: usize,
        lasts: Duration,
    ) -> Result<Vec<ClaimedNotification>, StoreError> {
        let claim = sqlx::query(
            "update approval_notice n
               set claimed_until = now() + $3 * interval '1 second', attempts = n.attempts + 1
               from (select tenant_id, approval_id from approval_notice
                 where destination = $1 and delivered_at is null and next_at <= now() and claimed_until <= now()
                   and expires_at > now()
                 order by next_at, approval_id limit $2 for update skip locked) due
               where n.tenant_id = due.tenant_id and n.approval_id = due.approval_id
             returning n.tenant_id, n.approval_id, n.event, coalesce(n.subject, '') as subject, n.attempts",
        );
        let claim = claim.bind(destination).bind(i64::try_from(max).unwrap_or(i64::MAX)).bind(seconds(lasts));
        let claimed = |row: &PgRow| {
            Ok(ClaimedNotification {
                tenant: TenantId(row.try_get("tenant_id")?),
                key: row.try_get("approval_id")?,
                event: row.try_get("event")?,
                subject: row.try_get("subject")?,
                attempts: decode(row, "attempts")?,
            })
        };
        self.readers.read(async |conn| claim.fetch_all(conn).await?.iter().map(claimed).collect()).await
    }

    /// State of the tenant's notifications, by destination.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn notification_queues(
        &self,
        tenant: TenantId,
    ) -> Result<BTreeMap<String, NotificationQueue>, StoreError> {
        let rows = sqlx::query(
            "select destination, count(*) filter (where delivered_at is null
                 and expires_at > now()) as waiting,
               count(*) filter (where delivered_at is null and expires_at > now()
                 and last_error is not null) as retrying,
               count(*) filter (where delivered_at is null and expires_at <= now()) as failed,
               count(delivered_at) as delivered,
               (array_agg(last_error order by last_error_at desc)
                  filter (where last_error is not null))[1] as last_error,
               (extract(epoch from max(last_error_at)) * 1000)::bigint as error_ms
             from approval_notice where tenant_id = $1 and destination is not null group by destination",
        );
        let rows = rows.bind(tenant.0);
        let queue = |row: &PgRow| {
            let last_error = row.try_get::<Option<String>, _>("last_error")?;
            let queue = NotificationQueue {
                waiting: count(row, "waiting")?,
                retrying: count(row, "retrying")?,
                failed: count(row, "failed")?,
                delivered: count(row, "delivered")?,
                last_error: last_error.map(|problem| LoadedRow::Ok((problem, at(row, "error_ms")?))).transpose()?,
            };
            Ok((row.try_get("destination")?, queue))
        };
        self.readers.read_of(&[tenant], async |conn| rows.fetch_all(conn).await?.iter().map(queue).collect()).await
    }

    /// Closes a notification; or, with `again`, schedules a retry after that time, with the problem of this attempt.
    /// Deletes obsolete rows.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: it may be sent once more.
    pub async fn settle_notification(
        &self,
        tenant: TenantId,
        key: &str,
        again: Option<(Duration, &str)>,
    ) -> Result<(), StoreError> {
        let problem = again.map(|(_, problem)| problem.chars().take(PROBLEM_MAX).collect::<String>());
        let update = "update approval_notice set claimed_until = now(), last_error = coalesce($4, last_error),
              last_error_at = case when $4::text is null then last_error_at else now() end,
              delivered_at = case when $3::bigint is null then now() end,
              subject = case when $3::bigint is not null then subject end,
              next_at = now() + coalesce($3, 0) * interval '1 second'
            where tenant_id = $1 and approval_id = $2";
        let update = sqlx::query(update).bind(tenant.0).bind(key).bind(again.map(|(wait, _)| seconds(wait)));
        let update = update.bind(problem);
        let old = "delete from approval_notice where tenant_id = $1 and expires_at < now() - interval '1 day'";
        let delete = sqlx::query(old).bind(tenant.0);
        self.readers
            .read(async |conn| {
                update.execute(&mut *conn).await?;
                Ok(delete.execute(conn).await.map(drop)?)
            })
            .await
    }

    /// The number of the newest entry of the audit log that is older than `age`; 0 without one.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn audited_before(&self, tenant: TenantId, age: Duration) -> Result<i64, StoreError> {
        let number = sqlx::query_scalar(
            "select coalesce(max(number) filter (where at < now() - $2 * interval '1 second'), min(number) - 1, 0)
             from (select number, at from audit where tenant_id = $1 order by number desc limit $3) a",
        );
        let number = number.bind(tenant.0).bind(seconds(age)).bind(FIRST_ENTRIES_MAX);
        self.readers.read_of(&[tenant], async |conn| Ok(number.fetch_one(conn).await?)).await
    }

    /// The first entries after a number of the audit log that tell of an answer, a withdrawal or a halt, and the number
    /// up to which the log was read.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn audited_after(&self, tenant: TenantId, number: i64) -> Result<(Vec<AuditedEvent>, i64), StoreError> {
        let kinds = [AuditOperation::Answered, AuditOperation::Withdrawn, AuditOperation::Halted];
        let head = sqlx::query_scalar("select number from audit_head where tenant_id = $1").bind(tenant.0);
        let rows = sqlx::query(
            "select number, kind, words[1] as who, words[5] as what, (extract(epoch from at) * 1000)::bigint as at_ms
             from audit where tenant_id = $1 and number > $2 and kind = any($3) order by number limit $4",
        );
        let rows = rows.bind(tenant.0).bind(number).bind(kinds.map(AuditOperation::as_str).to_vec()).bind(EVENTS_MAX);
        let event = |row: &PgRow| {
            Ok(AuditedEvent {
                number: row.try_get("number")?,
                kind: row.try_get("kind")?,
                by: row.try_get("who")?,
                what: row.try_get("what")?,
                at: at(row, "at_ms")?,
            })
        };
        let read = async |conn: &mut sqlx::PgConnection| {
            // The head first: entries are committed in the order of their numbers.
            let head: i64 = head.fetch_optional(&mut *conn).await?.unwrap_or(0);
            let events = rows.fetch_all(conn).await?.iter().map(event).collect::<LoadedRow<Vec<AuditedEvent>>>()?;
            let is_all = i64::try_from(events.len()).is_ok_and(|count| count < EVENTS_MAX);
            let last = events.last().map_or(number, |last| last.number);
            Ok((events, if is_all { last.max(head) } else { last }))
        };
        self.readers.read_of(&[tenant], read).await
    }

    /// Approval requests that expired without an answer, within the last `age`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn expired_approvals(&self, tenant: TenantId, age: Duration) -> Result<Vec<String>, StoreError> {
        let ids = sqlx::query_scalar(
            "select distinct c.approval_id from call c
             where c.tenant_id = $1 and c.approval_id is not null and c.approval_expires_at <= now()
               and c.approval_expires_at > now() - $2 * interval '1 second'
               and not exists (select from session_event e where e.shard = c.shard and e.tenant_id = c.tenant_id
                 and e.root_id = c.root_id and e.epoch = c.epoch and e.kind in ('answered', 'withdrawn')
                 and e.detail ->> 'approval_id' = c.approval_id)
             limit $3",
        );
        let ids = ids.bind(tenant.0).bind(seconds(age)).bind(EVENTS_MAX);
        self.readers.read_of(&[tenant], async |conn| Ok(ids.fetch_all(conn).await?)).await
    }

    /// The open circuit breakers of all tenants.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn open_circuits(&self) -> Result<Vec<OpenCircuit>, StoreError> {
        let rows = sqlx::query(
            "select tenant_id, tool, cooldown_failure,
               (extract(epoch from coalesce(failing_since, cooldown_since)) * 1000)::bigint as since_ms,
               (extract(epoch from cooldown_until) * 1000)::bigint as until_ms
             from tool_health where cooldown_until > now()",
        );
        let circuit = |row: &PgRow| {
            Ok(OpenCircuit {
                tenant: TenantId(row.try_get("tenant_id")?),
                tool: row.try_get("tool")?,
                failure: decode(row, "cooldown_failure")?,
                since: at(row, "since_ms")?,
                until: at(row, "until_ms")?,
            })
        };
        self.readers.read(async |conn| rows.fetch_all(conn).await?.iter().map(circuit).collect()).await
    }
}

fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}
