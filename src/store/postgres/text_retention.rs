//! Text retention: erases arguments, results, errors, notes and messages of calls after their period. Fields that
//! decisions use stay: tool, digests, resource, outcome.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{codes::RUNNING, columns::encryptable_columns, decode::LoadedRow, row::OutcomeRow};
use callgate_core::domain::{ids::TenantId, time::Timestamp};

/// Replacement of a rule's message.
pub(super) const GONE: &str = "What was said is no longer kept.";

/// Assignments that erase the texts of a judgment `c`. Findings keep their codes; on a distributed database nothing,
/// because it builds no JSON in an update.
fn call_without_words(is_distributed: bool) -> String {
    if is_distributed {
        return "arguments = null, justification = null, findings = null".to_owned();
    }
    format!(
        "arguments = null, justification = null,
         findings = case when jsonb_typeof(c.findings) = 'array' then (
           select jsonb_agg(f.finding - array['next_action', 'for_people', 'violations']
             || jsonb_build_object('message', '{GONE}') order by f.place)
           from jsonb_array_elements(c.findings) with ordinality f (finding, place)) end"
    )
}

const HAS_WORDS: &str = "(c.arguments is not null or c.justification is not null)";

/// Condition of a judgment `c` with an open approval request at `$4` (milliseconds).
const IS_ASKED: &str = "(c.approval_id is not null and c.approval_expires_at > to_timestamp($4 / 1000.0))";

/// Start of a tenant's oldest call tree.
pub(super) async fn first(conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<Option<Timestamp>> {
    let first = "select (extract(epoch from min(started_at)) * 1000)::bigint from call_tree where tenant_id = $1";
    let first: Option<i64> = sqlx::query_scalar(first).bind(tenant.0).fetch_one(conn).await?;
    Ok(first.map(Timestamp::from_millis))
}

/// Erases the texts of judgments and reports in a period, except for running calls and open approval requests at `now`;
/// returns the number of changed rows. A call with a later report is erased with that.
pub(super) async fn erase(
    conn: &mut PgConnection,
    tenant: TenantId,
    (from, to): (Timestamp, Timestamp),
    now: Timestamp,
    is_distributed: bool,
) -> LoadedRow<u64> {
    let within = |alias: &str| {
        format!(
            "{alias}.tenant_id = $1 and {alias}.at >= to_timestamp($2 / 1000.0)
               and {alias}.at < to_timestamp($3 / 1000.0) and $4::int8 > 0"
        )
    };
    let settles = format!(
        "o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
        and o.session_id = c.session_id and o.permit_seq = c.seq and o.status > {RUNNING}"
    );
    let call = call_without_words(is_distributed);
    let words: Vec<&str> =
        encryptable_columns(OutcomeRow::LIST).filter(|(_, sql)| *sql == "text").map(|(name, _)| name).collect();
    let statements = [
        format!(
            "update call c set {call} where {} and {HAS_WORDS} and not {IS_ASKED}
               and (c.attempt is null or exists (select from outcome o where {settles}))",
            within("c")
        ),
        format!("update call c set {call} from outcome o where {} and {settles} and {HAS_WORDS}", within("o")),
        format!(
            "update outcome o set {}, whole_bytes = null, whole_sha256 = null,
               marks = o.marks - array['named', 'numbers']
             where {} and ({})",
            words.iter().map(|column| format!("{column} = null")).collect::<Vec<_>>().join(", "),
            within("o"),
            // One without a message has no signature.
            words.iter().map(|column| format!("o.{column} is not null")).collect::<Vec<_>>().join(" or "),
        ),
        format!(
            "update session_event e set detail = e.detail #- '{{edit,arguments}}'
             where {} and e.detail -> 'edit' is not null and e.detail #> '{{edit,arguments}}' is not null",
            within("e")
        ),
    ];
    let mut erased = 0;
    for sql in statements {
        let erase = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(from.as_millis()).bind(to.as_millis());
        erased += erase.bind(now.as_millis()).execute(&mut *conn).await?.rows_affected();
    }
    Ok(erased)
}

/// Erases the texts of approval requests that were open when their period was processed, and are closed now.
pub(super) async fn erase_asked(
    conn: &mut PgConnection,
    tenant: TenantId,
    before: Timestamp,
    now: Timestamp,
    is_distributed: bool,
) -> LoadedRow<u64> {
    let erase = format!(
        "update call c set {} where c.tenant_id = $1 and c.approval_id is not null and c.attempt is null
           and c.at >= to_timestamp($2 / 1000.0) and c.at < to_timestamp($3 / 1000.0)
           and {HAS_WORDS} and not {IS_ASKED}",
        call_without_words(is_distributed)
    );
    let erase = sqlx::query(AssertSqlSafe(erase)).bind(tenant.0).bind(0_i64).bind(before.as_millis());
    Ok(erase.bind(now.as_millis()).execute(conn).await?.rows_affected())
}
