//! Key rotation: re-encrypts values of older keys, and plain ones, with the newest key. Each transaction updates a few
//! rows in place, so that an interrupted run restarts safely. Also counts the rows per key.

mod rows;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, postgres::PgRow};
use tokio::time::Instant;

use self::rows::Resealer;
use super::{
    Store,
    columns::{ColumnKind, encryptable_columns},
    controls::ControlRow,
    decode::{LoadedRow, corrupt},
    forget::shards,
    prune::{PART, PrunePace},
    row::{CallRow, OutcomeRow},
    sealed::Opener,
    text_retention::GONE,
};
use crate::{
    error::StoreError,
    sealing::{MARK, TenantKeys, file::KEY_ID_BYTES_MAX},
};
use callgate_core::domain::ids::TenantId;

/// Advisory lock of re-encryption: `callgate` and a number, as a key.
const LOCK: i64 = 0x6361_6c6c_0004;
/// Rows of the first transaction, and of one at most.
const ROWS: i64 = 16;
const ROWS_MAX: i64 = 512;
/// Maximum bytes per transaction, except its last row: the transaction idles meanwhile, and times out after 2 s.
const BYTES_MAX: usize = 4 << 20;
/// Length of a stored text's prefix that holds its key's name.
const HEAD_BYTES: usize = MARK.len() + KEY_ID_BYTES_MAX + 1;

/// Number of rows by key name; the empty name counts rows with a plain text.
pub type Uses = BTreeMap<String, u64>;

/// A table with encrypted texts.
struct SealedTable {
    name: &'static str,
    /// Its kind in [`super::texts`].
    kind: &'static str,
    /// Its key after shard and tenant, and the session, each with its type and a minimum value.
    key: &'static [(&'static str, &'static str, &'static str)],
    list: &'static [(&'static str, ColumnKind)],
    /// Texts of a row `t` inside JSON columns.
    within: &'static str,
}

static TABLES: [SealedTable; 3] = [
    SealedTable {
        name: "call",
        kind: "call",
        key: &[("epoch", "date", "-infinity"), ("session_id", "text", ""), ("seq", "int8", "-1")],
        list: CallRow::LIST,
        within: "array(select f ->> 'message' from jsonb_array_elements(case jsonb_typeof(t.findings)
            when 'array' then t.findings else '[]' end) f)",
    },
    SealedTable {
        name: "outcome",
        kind: "outcome",
        key: &[
            ("epoch", "date", "-infinity"),
            ("session_id", "text", ""),
            ("permit_seq", "int8", "-1"),
            ("seq", "int8", "-1"),
        ],
        list: OutcomeRow::LIST,
        // Without a name, and without the hashes of one, they hold no words.
        within: "array[coalesce(t.marks ->> 'named',
            case when t.marks ->> 'frame' <> '0000000000000000' then '' end)]",
    },
    SealedTable {
        name: "session_event",
        kind: "event",
        key: &[
            ("root_id", "text", ""),
            ("epoch", "date", "-infinity"),
            ("seq", "int8", "-1"),
            ("session_id", "text", ""),
        ],
        list: ControlRow::LIST,
        within: "array[t.detail -> 'clears' ->> 'resource', t.detail -> 'edit' ->> 'arguments']",
    },
];

/// The key name of a stored text `head` as `$1`.
fn key_of(head: &str) -> String {
    format!("case when starts_with({head}, '{MARK}') then split_part({head}, ':', 3) else '' end")
}

impl SealedTable {
    /// The key names of a row `t`, as rows `h`.
    fn keys(&self) -> String {
        let texts = encryptable_columns(self.list).filter(|(_, sql)| *sql == "text");
        let heads: Vec<String> = texts.map(|(column, _)| format!("left(t.{column}, {HEAD_BYTES})")).collect();
        format!(
            "lateral (select distinct {} as key
               from unnest(array[{}]::text[] || {}) u (head) where head is not null and head <> '{GONE}') h",
            key_of("head"),
            heads.join(", "),
            self.within
        )
    }

    fn key_columns(&self) -> String {
        self.key.iter().map(|(column, _, _)| format!("t.{column}")).collect::<Vec<_>>().join(", ")
    }

    /// The next rows of another key: `$1` shard, `$2` tenant, `$3` the last row, `$4` the newest key, `$5` their
    /// number.
    fn page(&self) -> String {
        let (name, key) = (self.name, self.key_columns());
        let after = self.key.iter().map(|(column, sql, _)| format!("($3::text::jsonb ->> '{column}')::{sql}"));
        let columns = encryptable_columns(self.list).map(|(column, _)| format!("t.{column}"));
        format!(
            "select to_jsonb(q)::text from (
               select {key}, {} from {name} t
               where t.shard = $1 and t.tenant_id = $2 and ({key}) > ({})
                 and exists (select from {} where h.key <> $4)
               order by {key} limit $5 for update) q",
            columns.collect::<Vec<_>>().join(", "),
            after.collect::<Vec<_>>().join(", "),
            self.keys()
        )
    }

    /// `$1` shard, `$2` tenant, `$3` rows as from [`SealedTable::page`].
    fn update(&self) -> String {
        let key: Vec<(&str, &str)> = self.key.iter().map(|(column, sql, _)| (*column, *sql)).collect();
        let typed =
            key.iter().copied().chain(encryptable_columns(self.list)).map(|(column, sql)| format!("{column} {sql}"));
        let set = encryptable_columns(self.list).map(|(column, _)| format!("{column} = x.{column}"));
        let same = key.iter().map(|(column, _)| format!("t.{column} = x.{column}"));
        format!(
            "update {} t set {} from jsonb_to_recordset($3::text::jsonb) as x({})
             where t.shard = $1 and t.tenant_id = $2 and {}",
            self.name,
            set.collect::<Vec<_>>().join(", "),
            typed.collect::<Vec<_>>().join(", "),
            same.collect::<Vec<_>>().join(" and ")
        )
    }
}

/// Re-encryption of a tenant, exclusive while it lives.
#[derive(Debug)]
pub struct Reseal {
    tenant: TenantId,
    keys: Arc<TenantKeys>,
    opener: Opener,
    /// Holds the lock.
    _turn: PgConnection,
}

impl Store {
    /// Number of rows in a part by key, and the shards with rows of another key than `newest`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn key_uses(&self, tenant: TenantId, part: u16, newest: &str) -> Result<(Uses, Vec<i16>), StoreError> {
        // A distributed database takes such a statement for one shard at a time.
        let each = if self.is_distributed { 1 } else { shards(part).len() };
        let which = if self.is_distributed { "($1::int2[])[1]" } else { "any($1)" };
        let tables = TABLES.iter().map(|table| {
            format!(
                "select t.shard, h.key from {} t, {} where t.shard = {which} and t.tenant_id = $2",
                table.name,
                table.keys()
            )
        });
        let sql = format!(
            "select shard, key, count(*) as rows from ({}) u group by 1, 2 order by 1",
            tables.collect::<Vec<_>>().join(" union all ")
        );
        let mut rows = Vec::new();
        for some in shards(part).chunks(each) {
            let query = sqlx::query(AssertSqlSafe(sql.as_str())).bind(some.to_vec()).bind(tenant.0);
            rows.extend(self.slow.read_of(&[tenant], async |conn| Ok(query.fetch_all(conn).await?)).await?);
        }
        let (mut uses, mut older) = (Uses::new(), Vec::new());
        for row in &rows {
            let (shard, key): (i16, String) = (row.try_get("shard")?, row.try_get("key")?);
            if key != newest && older.last() != Some(&shard) {
                older.push(shard);
            }
            *uses.entry(key).or_default() += super::decode::count(row, "rows")?;
        }
        Ok((uses, older))
    }

    /// Number of encrypted audit reasons by key. Plain ones are not counted, because the chain hashes them.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn key_uses_of_audit(&self, tenant: TenantId) -> Result<Uses, StoreError> {
        let sql = format!(
            "select {} as key, count(*) as rows from audit t, lateral (select coalesce(t.resealed, t.words[6])) w (why)
             where t.tenant_id = $1 and starts_with(why, '{MARK}') group by 1",
            key_of("why")
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0);
        let rows = self.slow.read_of(&[tenant], async |conn| Ok(query.fetch_all(conn).await?)).await?;
        rows.iter().map(|row| Ok((row.try_get("key")?, super::decode::count(row, "rows")?))).collect()
    }

    /// Starts re-encryption with the newest of these keys; none while another replica does.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn reseal(&self, tenant: TenantId, keys: Arc<TenantKeys>) -> Result<Option<Reseal>, StoreError> {
        // On a connection of its own, which takes its lock with it.
        let mut turn = self.slow.separate().await?;
        let lock = sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(LOCK);
        let is_mine: bool = lock.fetch_one(&mut turn).await?;
        Ok(is_mine.then(|| Reseal { tenant, keys, opener: self.opener(tenant), _turn: turn }))
    }

    /// Re-encrypts the rows of a shard; returns their number. Undecryptable values stay.
    ///
    /// # Errors
    /// [`StoreError`]; idempotent.
    pub async fn reseal_shard(&self, of: &Reseal, shard: i16) -> Result<u64, StoreError> {
        let mut sealed = 0;
        for table in &TABLES {
            let first = table.key.iter().map(|(column, _, first)| ((*column).to_owned(), Value::from(*first)));
            let (mut after, mut rows) = (Value::Object(first.collect()), ROWS);
            loop {
                let began = Instant::now();
                let work = async |conn: &mut PgConnection| page(conn, of, table, shard, &after, rows).await;
                let Some((last, done)) = self.slow.read_of(&[of.tenant], work).await? else { break };
                (after, sealed) = (last, sealed + done);
                rows = if began.elapsed() > PART { (rows / 2).max(1) } else { (rows * 2).min(ROWS_MAX) };
                PrunePace::of(self).rest_after(began).await;
            }
        }
        Ok(sealed)
    }

    /// Re-encrypts a page of audit reasons after an entry; returns the last entry read, and the number of changes. The
    /// encrypted texts that the chain hashes stay.
    ///
    /// # Errors
    /// [`StoreError`]: nothing was done, or the result is unknown; idempotent.
    pub async fn reseal_audit(&self, of: &Reseal, after: u64) -> Result<Option<(u64, u64)>, StoreError> {
        let began = Instant::now();
        let done = self.slow.read_of(&[of.tenant], async |conn| audit_page(conn, of, after).await).await?;
        PrunePace::of(self).rest_after(began).await;
        Ok(done)
    }
}

fn object(row: &PgRow) -> LoadedRow<Map<String, Value>> {
    serde_json::from_str(row.try_get(0)?).map_err(|error| corrupt(&error.to_string()))
}

/// One transaction: returns the last row read, and the number of changes; none without a row.
async fn page(
    conn: &mut PgConnection,
    of: &Reseal,
    table: &SealedTable,
    shard: i16,
    after: &Value,
    rows: i64,
) -> LoadedRow<Option<(Value, u64)>> {
    let mut tx = conn.begin().await?;
    let found = sqlx::query(AssertSqlSafe(table.page())).bind(shard).bind(of.tenant.0).bind(after.to_string());
    let found = found.bind(of.keys.newest()).bind(rows).fetch_all(&mut *tx).await?;
    let mut bytes = 0;
    let fits = |row: &&PgRow| {
        let is_first = bytes < BYTES_MAX;
        bytes += row.try_get(0).map_or(0, str::len);
        is_first
    };
    let found: Vec<Map<String, Value>> = found.iter().take_while(fits).map(object).collect::<LoadedRow<_>>()?;
    let Some(last) = found.last() else { return Ok(None) };
    let last = table.key.iter().map(|(column, _, _)| ((*column).to_owned(), last[*column].clone())).collect();
    let mut resealer = Resealer::new(&of.opener, &of.keys)?;
    let changed: Vec<Value> =
        found.into_iter().filter_map(|row| resealer.row(table.kind, row).transpose()).collect::<LoadedRow<_>>()?;
    let count = changed.len() as u64;
    let update = sqlx::query(AssertSqlSafe(table.update())).bind(shard).bind(of.tenant.0);
    update.bind(Value::Array(changed).to_string()).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(Some((Value::Object(last), count)))
}

async fn audit_page(conn: &mut PgConnection, of: &Reseal, after: u64) -> LoadedRow<Option<(u64, u64)>> {
    let mut tx = conn.begin().await?;
    let page = format!(
        "select to_jsonb(q)::text from (
           select t.number, t.words[4] as session_id, t.words[6] as why, t.resealed from audit t
           where t.tenant_id = $1 and t.number > $2 and starts_with(t.words[6], '{MARK}')
             and {} <> $3 order by t.number limit {ROWS_MAX} for update) q",
        key_of("coalesce(t.resealed, t.words[6])")
    );
    let found: Vec<Map<String, Value>> = sqlx::query(AssertSqlSafe(page))
        .bind(of.tenant.0)
        .bind(super::row::big(after))
        .bind(of.keys.newest())
        .fetch_all(&mut *tx)
        .await?
        .iter()
        .map(object)
        .collect::<LoadedRow<_>>()?;
    let number = |row: &Map<String, Value>| row.get("number").and_then(Value::as_u64).unwrap_or_default();
    let Some(last) = found.last().map(number) else { return Ok(None) };
    let mut resealer = Resealer::new(&of.opener, &of.keys)?;
    let mut changed = Vec::new();
    for row in found {
        let number = number(&row);
        if let Some(resealed) = resealer.reason(number, &row)? {
            changed.push(json!({"number": number, "resealed": resealed}));
        }
    }
    let count = changed.len() as u64;
    let update = sqlx::query(
        "update audit t set resealed = x.resealed
         from jsonb_to_recordset($2::text::jsonb) as x(number int8, resealed text)
         where t.tenant_id = $1 and t.number = x.number",
    );
    update.bind(of.tenant.0).bind(Value::Array(changed).to_string()).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(Some((last, count)))
}
