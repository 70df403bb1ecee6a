//! Details of one stored call.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    super::{
        Store,
        codes::RUNNING,
        decode::{self, LoadedRow, at, count, decode, whole},
        export, point_queries,
        sealed::{self, Opener},
    },
    call_lines::{self, CallKey, JUDGEMENT, judgement},
};
use crate::error::StoreError;
use callgate_core::domain::{
    calls::{CallAnswer, CallJudgment, CallPlace, CallReport, WholeCall},
    ids::{CallId, SessionId, TenantId},
    shard::Shard,
};

/// Maximum number of judgments per call, the newest.
const JUDGEMENTS_MAX: usize = 100;

impl Store {
    /// A call of a session, if it exists.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn whole_call(
        &self,
        tenant: TenantId,
        session: &SessionId,
        call_id: &CallId,
        with_rows: bool,
    ) -> Result<Option<WholeCall>, StoreError> {
        let opener = self.opener(tenant);
        let read = async |conn: &mut PgConnection| whole_call(conn, &opener, session, call_id, with_rows).await;
        self.readers.read_of(&[tenant], read).await
    }
}

/// Keys of a call's rows.
struct CallRows<'a> {
    shard: i16,
    tenant: TenantId,
    root: &'a SessionId,
    session: &'a str,
    call_id: &'a str,
}

const OF_CALL: &str = "select t.epoch from call_tree t where t.shard = $1 and t.tenant_id = $2 and t.root_id = $3";

impl CallRows<'_> {
    async fn rows(&self, conn: &mut PgConnection, sql: String) -> LoadedRow<Vec<PgRow>> {
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(self.shard).bind(self.tenant.0);
        let query = query.bind(self.root.as_str()).bind(self.session).bind(self.call_id);
        Ok(query.fetch_all(conn).await?)
    }
}

async fn whole_call(
    conn: &mut PgConnection,
    opener: &Opener,
    session: &SessionId,
    call_id: &CallId,
    with_rows: bool,
) -> LoadedRow<Option<WholeCall>> {
    let tenant = opener.tenant();
    let Some(root) = point_queries::root(conn, tenant, session).await? else { return Ok(None) };
    let shard = Shard::of(tenant, &root).0;
    let key = CallKey {
        shard,
        place: CallPlace { last_us: 0, root: root.to_string(), seq: 0 },
        session: session.to_string(),
        call_id: call_id.to_string(),
    };
    let Some(line) = call_lines::read_calls(conn, opener, &[key]).await?.pop() else { return Ok(None) };
    let place = CallRows { shard, tenant, root: &root, session: session.as_str(), call_id: call_id.as_str() };
    let (arguments, justification) = read_texts(conn, &place, opener).await?;
    let (reports, given) = reports(conn, &place, opener).await?;
    Ok(Some(WholeCall {
        arguments,
        justification,
        result: given.result,
        whole: given.whole,
        error: given.error,
        judgements: judgements(conn, &place, opener).await?,
        reports,
        answers: answers(conn, &place, opener).await?,
        followed_by: followed_by(conn, &place).await?,
        rows: match with_rows {
            true => export::rows_of(conn, opener, shard, (place.session, place.call_id)).await?,
            false => Vec::new(),
        },
        line,
    }))
}

/// Arguments and justification at the last judgment.
async fn read_texts(
    conn: &mut PgConnection,
    place: &CallRows<'_>,
    opener: &Opener,
) -> LoadedRow<(Option<String>, Option<String>)> {
    let sql = format!(
        "select c.seq, c.arguments, c.justification from call c where c.shard = $1 and c.tenant_id = $2
           and c.epoch = ({OF_CALL}) and c.session_id = $4 and c.call_id = $5 order by c.round desc limit 1"
    );
    let rows = place.rows(conn, sql).await?;
    let Some(row) = rows.first() else { return Ok((None, None)) };
    let seq = count(row, "seq")?;
    let open = |what: &str, column: &str| opener.optional_text(what, place.session, seq, row.try_get(column)?);
    Ok((open(sealed::ARGUMENTS, "arguments")?, open(sealed::JUSTIFICATION, "justification")?))
}

async fn judgements(conn: &mut PgConnection, place: &CallRows<'_>, opener: &Opener) -> LoadedRow<Vec<CallJudgment>> {
    let sql = format!(
        "select {JUDGEMENT} from call c where c.shard = $1 and c.tenant_id = $2 and c.epoch = ({OF_CALL})
           and c.session_id = $4 and c.call_id = $5 order by c.round desc limit {JUDGEMENTS_MAX}"
    );
    let rows = place.rows(conn, sql).await?;
    rows.iter().rev().map(|row| judgement(row, place.session, opener)).collect()
}

/// The last result.
#[derive(Default)]
struct GivenLast {
    result: Option<String>,
    whole: Option<callgate_core::domain::truncation::FullText>,
    error: Option<String>,
}

async fn reports(
    conn: &mut PgConnection,
    place: &CallRows<'_>,
    opener: &Opener,
) -> LoadedRow<(Vec<CallReport>, GivenLast)> {
    let sql = format!(
        "select o.seq, (extract(epoch from o.at) * 1000)::bigint as at_ms, o.status, o.failure, o.error_line,
           o.by_lease,
           o.duration_ms, o.retryable, o.retry_after_ms, o.retries_remaining, o.p_success, o.p_low, o.p_high,
           o.confidence, o.basis, o.guard, o.trials, (extract(epoch from o.as_of) * 1000)::bigint as as_of_ms, o.probe,
           o.repeat,
           o.progress_note, encode(o.trace_id, 'hex') as trace_id
         from call c join outcome o on o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
           and o.session_id = c.session_id and o.permit_seq = c.seq
         where c.shard = $1 and c.tenant_id = $2 and c.epoch = ({OF_CALL}) and c.session_id = $4 and c.call_id = $5
           and c.attempt is not null order by o.seq desc limit {JUDGEMENTS_MAX}"
    );
    let rows = place.rows(conn, sql).await?;
    let reports = rows.iter().rev().map(|row| report(row, place.session, opener)).collect::<LoadedRow<_>>()?;
    let sql = format!(
        "select o.seq, o.result, o.error_message, o.whole_bytes, o.whole_sha256
         from call c join outcome o on o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
           and o.session_id = c.session_id and o.permit_seq = c.seq and o.status > {RUNNING}
         where c.shard = $1 and c.tenant_id = $2 and c.epoch = ({OF_CALL}) and c.session_id = $4 and c.call_id = $5
         order by o.seq desc limit 1"
    );
    let given = match place.rows(conn, sql).await?.first() {
        Some(row) => {
            let open = |what: &str, column: &str| {
                opener.optional_text(what, place.session, count(row, "seq")?, row.try_get(column)?)
            };
            let (result, error) = (open(sealed::RESULT, "result")?, open(sealed::ERROR, "error_message")?);
            GivenLast { result, whole: whole(row)?, error }
        }
        None => GivenLast::default(),
    };
    Ok((reports, given))
}

fn report(row: &PgRow, session: &str, opener: &Opener) -> LoadedRow<CallReport> {
    let seq = count(row, "seq")?;
    let open = |what: &str, column: &str| opener.optional_text(what, session, seq, row.try_get(column)?);
    Ok(CallReport {
        seq,
        at: at(row, "at_ms")?,
        status: decode(row, "status")?,
        failure: decode(row, "failure")?,
        error: open(sealed::ERROR_LINE, "error_line")?,
        by_lease: row.try_get("by_lease")?,
        duration_ms: decode(row, "duration_ms")?,
        advice: decode::advice(row)?,
        note: open(sealed::NOTE, "progress_note")?,
        trace: row.try_get("trace_id")?,
    })
}

async fn answers(conn: &mut PgConnection, place: &CallRows<'_>, opener: &Opener) -> LoadedRow<Vec<CallAnswer>> {
    let sql = format!(
        "select (extract(epoch from e.at) * 1000)::bigint as at_ms, e.kind, e.actor, e.reason,
           coalesce((e.detail ->> 'approved')::boolean, false) as approved, e.detail -> 'edit' is not null as edited
         from session_event e where e.shard = $1 and e.tenant_id = $2 and e.root_id = $3 and e.epoch = ({OF_CALL})
           and e.session_id = $4 and e.detail ->> 'call_id' = $5
           and e.kind in ('answered', 'seconded', 'withdrawn', 'outcome_settled') order by e.seq"
    );
    let answer = |row: &PgRow| {
        Ok(CallAnswer {
            at: at(row, "at_ms")?,
            kind: row.try_get("kind")?,
            by: row.try_get("actor")?,
            why: opener.optional_text(sealed::REASON, place.session, sealed::WHY, row.try_get("reason")?)?,
            approved: row.try_get("approved")?,
            edited: row.try_get("edited")?,
        })
    };
    place.rows(conn, sql).await?.iter().map(answer).collect()
}

async fn followed_by(conn: &mut PgConnection, place: &CallRows<'_>) -> LoadedRow<Vec<String>> {
    let sql = format!(
        "select f.call_id, min(f.seq) as seq from call c
         join call f on f.shard = c.shard and f.tenant_id = c.tenant_id and f.epoch = c.epoch
           and f.session_id = c.session_id and f.seq > c.seq and f.retry_of = c.seq
         where c.shard = $1 and c.tenant_id = $2 and c.epoch = ({OF_CALL}) and c.session_id = $4 and c.call_id = $5
           and c.attempt is not null group by f.call_id order by min(f.seq) limit {JUDGEMENTS_MAX}"
    );
    place.rows(conn, sql).await?.iter().map(|row| Ok(row.try_get("call_id")?)).collect()
}
