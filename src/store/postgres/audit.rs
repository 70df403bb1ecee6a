//! Audit log: entries written in the transaction of their operation.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, Row as _, Transaction, postgres::PgRow};

use super::{
    Store,
    decode::{LoadedRow, corrupt, count, decode},
    row::big,
    sealed::Opener,
};
use crate::{
    error::StoreError,
    sealing::{MARK, TenantStorage},
};
use callgate_core::domain::{
    audit::{Anchor, AuditEvent, AuditFilter, ChainEntry, ChainVerification, ChainVerifier, HashedText, WORDS},
    event,
    forgetting::{WORD_BYTES_MIN, holds},
    ids::TenantId,
    time::Timestamp,
};

/// Entries per page of a verification.
const PAGE: i64 = 1_000;
/// Entries that a page with a filter searches.
const SEARCHED_MAX: i64 = 20_000;
/// Maximum number of names per regular expression.
const NAMES: usize = 100;

/// Appends an entry to the tenant's audit log; returns its number. It must be last in the operation's transaction: the
/// tenant's next entry, for which an agent may wait, waits for the commit.
///
/// # Errors
/// [`StoreError`]: the transaction cannot be committed any more.
pub async fn append(conn: &mut PgConnection, tenant: TenantId, event: &AuditEvent) -> LoadedRow<u64> {
    let number = sqlx::query_scalar("select audit_append($1, $2, $3)").bind(tenant.0).bind(event.kind.as_str());
    let number: i64 = number.bind(event.texts().to_vec()).fetch_one(conn).await?;
    u64::try_from(number).map_err(|_| corrupt("an entry of the audit has no number"))
}

impl Store {
    /// Appends an entry for an operation outside a single transaction.
    ///
    /// # Errors
    /// [`StoreError`]: it was not recorded.
    pub async fn append_audit_entry(&self, tenant: TenantId, event: &AuditEvent) -> Result<(), StoreError> {
        self.readers.read_of(&[tenant], async |conn| commit(conn.begin().await?, tenant, event).await).await
    }
}

/// Commits a transaction with the entry of its operation, then logs it.
///
/// # Errors
/// [`StoreError`]: nothing was done, or the result is unknown.
pub async fn commit(mut tx: Transaction<'_, Postgres>, tenant: TenantId, event: &AuditEvent) -> LoadedRow<()> {
    append(&mut tx, tenant, event).await?;
    tx.commit().await?;
    log(tenant, event);
    Ok(())
}

/// Logs a committed operation.
pub fn log(tenant: TenantId, event: &AuditEvent) {
    let AuditEvent { kind, by, session, what, why } = event;
    tracing::event!(
        target: "callgate::audit",
        tracing::Level::INFO,
        { "callgate.tenant" } = tenant.0,
        { "callgate.audit.kind" } = kind.as_str(),
        { "callgate.audit.by" } = by.name.as_str(),
        { "callgate.audit.credential" } = %by.credential,
        { "callgate.audit.address" } = by.from.as_deref(),
        { "gen_ai.conversation.id" } = session.as_deref(),
        { "callgate.audit.action" } = what.as_str(),
        { "callgate.audit.reason" } = why.as_deref(),
        "{}: {what}, by {}",
        kind.as_str(),
        by.name
    );
}

/// Logs committed operations on a call tree.
pub(super) fn log_events(tenant: TenantId, events: &[event::Event]) {
    for event in events {
        if let event::Event::Controlled(controlled) = event
            && let Some(told) = AuditEvent::of(controlled)
        {
            log(tenant, &told);
        }
    }
}

/// Erases a subject from the tenant's audit log:
/// - of entries about one of `sessions`: the session, the description and the reason
/// - of other entries: each of these that contains one of `names`, in any case
///
/// Actors and their credentials stay, because they are responsible; only in entries about these sessions they go where
/// they contain such a name. Appends an entry about the erasure, which must not contain the names. Returns the number
/// of changed entries. Must be last in its transaction; the search precedes the entry.
///
/// # Errors
/// [`StoreError`]: the transaction cannot be committed any more.
pub async fn erase(
    conn: &mut PgConnection,
    tenant: TenantId,
    event: &AuditEvent,
    sessions: &[&str],
    names: &[&str],
) -> LoadedRow<u64> {
    let opener = Opener::new(tenant, TenantStorage::Plain);
    let found = find(conn, &opener, sessions, names).await?;
    erase_found(conn, &opener, event, (sessions, names), found).await
}

/// Entries that name a subject, as of the search.
#[derive(Debug)]
pub(super) struct NamedEntries {
    numbers: Vec<i64>,
    /// Those with an encrypted reason that contains a name.
    sealed: Vec<i64>,
    newest: i64,
}

/// Condition of an entry `a` to change: `$2` are sessions, `$3` the patterns of names.
const HOLDS: &str = "(a.words[4] = any($2) or exists (
    select from unnest(a.words[4:6]) word, unnest($3::text[]) p where word ~* p))";

/// Finds the entries for [`erase`], before anything is locked.
pub(super) async fn find(
    conn: &mut PgConnection,
    opener: &Opener,
    sessions: &[&str],
    names: &[&str],
) -> LoadedRow<NamedEntries> {
    let tenant = opener.tenant();
    let newest = sqlx::query_scalar("select coalesce(max(number), 0) from audit where tenant_id = $1");
    let newest: i64 = newest.bind(tenant.0).fetch_one(&mut *conn).await?;
    let found = format!("select a.number from audit a where a.tenant_id = $1 and {HOLDS}");
    let found = sqlx::query_scalar(AssertSqlSafe(found)).bind(tenant.0).bind(sessions.to_vec()).bind(patterns(names));
    let numbers = found.fetch_all(&mut *conn).await?;
    Ok(NamedEntries { numbers, sealed: find_encrypted_reasons(conn, opener, names, 0).await?, newest })
}

/// Entries after a number with an encrypted reason that contains a name. Values of lost keys are skipped. Without any
/// of the tenant's keys this is an error.
async fn find_encrypted_reasons(
    conn: &mut PgConnection,
    opener: &Opener,
    names: &[&str],
    after: i64,
) -> LoadedRow<Vec<i64>> {
    let (mut last, mut found) = (after, Vec::new());
    while !opener.is_plain() {
        let page = format!(
            "select number, coalesce(words[4], '') as session, words[6] as why, resealed from audit
             where tenant_id = $1 and number > $2 and starts_with(words[6], '{MARK}') order by number limit {PAGE}"
        );
        let page = sqlx::query(AssertSqlSafe(page)).bind(opener.tenant().0).bind(last).fetch_all(&mut *conn).await?;
        let Some(end) = page.last() else { break };
        last = end.try_get("number")?;
        for row in &page {
            let (number, session) = (row.try_get::<i64, _>("number")?, row.try_get("session")?);
            let entry = u64::try_from(number).unwrap_or_default();
            match opener.reason(session, entry, row.try_get("why")?, row.try_get("resealed")?) {
                Ok(Some(why)) if names.iter().any(|name| holds(&why, name)) => found.push(number),
                Err(locked) if opener.is_locked() => return Err(locked),
                Ok(_) | Err(_) => {}
            }
        }
    }
    Ok(found)
}

/// Erases them, and those added since the search.
pub(super) async fn erase_found(
    conn: &mut PgConnection,
    opener: &Opener,
    event: &AuditEvent,
    (sessions, names): (&[&str], &[&str]),
    mut found: NamedEntries,
) -> LoadedRow<u64> {
    let tenant = opener.tenant();
    let by = append(conn, tenant, event).await?;
    found.sealed.extend(find_encrypted_reasons(conn, opener, names, found.newest).await?);
    found.numbers.extend(&found.sealed);
    // An encrypted reason is bound to its session, and undecryptable once that is erased.
    let sql = format!(
        "update audit a set words = k.words, salts = k.salts, erased_by = $4,
           resealed = case when k.words[6] is not null then resealed end
         from (select a.number, array_agg(case when gone then null else word end order by place) as words,
             array_agg(case when gone then null else salt end order by place) as salts
           from audit a, unnest(a.words, a.salts) with ordinality u (word, salt, place),
             lateral (select coalesce(a.words[4] = any($2), false) as is_theirs,
               exists (select from unnest($3::text[]) p where word ~* p) as is_named,
               place = 6 and (a.number = any($7) or starts_with(word, '{MARK}')
                 and exists (select from unnest($3::text[]) p where a.words[4] ~* p)) as is_sealed) h,
             lateral (select case when place >= 4 then is_theirs or is_named or coalesce(is_sealed, false)
               else is_theirs and is_named end as gone) g
           where a.tenant_id = $1 and (a.number = any($5) or a.number > $6 and {HOLDS}) and a.number <> $4
           group by a.number) k
         where a.tenant_id = $1 and a.number = k.number"
    );
    let erase = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(sessions.to_vec()).bind(patterns(names));
    let erase = erase.bind(big(by)).bind(found.numbers).bind(found.newest).bind(found.sealed);
    Ok(erase.execute(conn).await?.rows_affected())
}

/// Regular expressions that find names in texts. A short name is matched only as a whole text, or as the target of a
/// halt.
fn patterns(names: &[&str]) -> Vec<String> {
    let literal = |name: &&str| -> String {
        let escaped: String = name
            .chars()
            .flat_map(|c| (c.is_ascii() && !c.is_ascii_alphanumeric()).then_some('\\').into_iter().chain([c]))
            .collect();
        if name.len() < WORD_BYTES_MIN { format!("^((session|agent) )?{escaped}$") } else { escaped }
    };
    names.chunks(NAMES).map(|names| names.iter().map(literal).collect::<Vec<_>>().join("|")).collect()
}

impl Store {
    /// Audit entries that a filter selects, newest first: those before a number, at most `max`. Also returns the number
    /// before which the search goes on, where it ended at its limit of entries.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        before: Option<u64>,
        max: usize,
    ) -> Result<(Vec<ChainEntry>, Option<u64>), StoreError> {
        let opener = self.opener(tenant);
        let opened = |row: &PgRow| open_entry(&opener, row);
        let read = async |conn: &mut PgConnection| {
            let (rows, rest) = search(conn, tenant, filter, (before.map(big), max)).await?;
            Ok((rows.iter().map(opened).collect::<LoadedRow<_>>()?, rest))
        };
        self.readers.read_of(&[tenant], read).await
    }

    /// Verifies the tenant's whole audit log in one snapshot.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn check_audit(&self, tenant: TenantId, anchors: Vec<Anchor>) -> Result<ChainVerification, StoreError> {
        self.slow.read_of(&[tenant], async |conn| check(conn, tenant, anchors).await).await
    }
}

/// Number of the first entry of the tenant `$1` since `$2`; one more than the last one's without a time. Entries are
/// numbered in the order of their times, which have no index. A missing entry ends the halving at a higher number.
const FIRST_SINCE: &str = "with recursive halved (low, high) as (
    select 0::bigint, coalesce(max(number), 0) + 1 from audit where tenant_id = $1
    union all
    select case when a.at < to_timestamp($2 / 1000.0) then a.number else low end,
      case when a.at < to_timestamp($2 / 1000.0) then high else a.number end
    from halved, audit a
    where a.tenant_id = $1 and a.number = (low + high) / 2 and high - low > 1 and $2::bigint is not null)
  select min(high) from halved";

/// The entries of a page, and the number before which the search goes on. Numbers have no gap, so that a range of them
/// bounds the search.
async fn search(
    conn: &mut PgConnection,
    tenant: TenantId,
    filter: &AuditFilter,
    (before, max): (Option<i64>, usize),
) -> LoadedRow<(Vec<PgRow>, Option<u64>)> {
    let first = sqlx::query_scalar(FIRST_SINCE).bind(tenant.0).bind(filter.until.map(Timestamp::as_millis));
    let before = match before {
        Some(before) => before,
        None => first.fetch_one(&mut *conn).await?,
    };
    let least = (before - SEARCHED_MAX).max(1);
    let rows = sqlx::query(
        "select *, (extract(epoch from at) * 1000000)::bigint as at_us from audit
         where tenant_id = $1 and number >= $2 and number < $3 and ($5::text is null or kind = $5)
           and ($6::text is null or strpos(lower(words[1]), lower($6)) > 0 or strpos(lower(words[2]), lower($6)) > 0)
           and ($7::text is null or strpos(lower(words[4]), lower($7)) > 0 or strpos(lower(words[5]), lower($7)) > 0)
           and ($8::bigint is null or at >= to_timestamp($8 / 1000.0))
           and ($9::bigint is null or at < to_timestamp($9 / 1000.0))
         order by number desc limit $4",
    );
    let AuditFilter { by, kind, subject, from, until } = filter;
    let rows = rows.bind(tenant.0).bind(least).bind(before).bind(i64::try_from(max).unwrap_or(i64::MAX));
    let rows = rows.bind(kind).bind(by).bind(subject);
    let rows = rows.bind(from.map(Timestamp::as_millis)).bind(until.map(Timestamp::as_millis));
    let rows = rows.fetch_all(&mut *conn).await?;
    if least <= 1 || rows.len() >= max {
        return Ok((rows, None));
    }
    // Entries are numbered in the order of their times.
    let is_over = "select at < to_timestamp($3 / 1000.0) from audit where tenant_id = $1 and number = $2";
    let is_over = sqlx::query_scalar(is_over).bind(tenant.0).bind(least).bind(from.map_or(0, Timestamp::as_millis));
    let is_over: Option<bool> = is_over.fetch_optional(conn).await?;
    Ok((rows, (is_over != Some(true)).then(|| u64::try_from(least).unwrap_or_default())))
}

/// Verifies a tenant's whole audit log in one snapshot.
pub(super) async fn check(
    conn: &mut PgConnection,
    tenant: TenantId,
    anchors: Vec<Anchor>,
) -> LoadedRow<ChainVerification> {
    // Of one moment: an entry may be added, and words erased, meanwhile.
    let mut tx = conn.begin_with("begin isolation level repeatable read read only").await?;
    let mut check = ChainVerifier::new(tenant, anchors);
    let mut last = i64::MIN;
    loop {
        let page = sqlx::query(
            "select *, (extract(epoch from at) * 1000000)::bigint as at_us from audit
             where tenant_id = $1 and number > $2 order by number limit $3",
        );
        let page = page.bind(tenant.0).bind(last).bind(PAGE).fetch_all(&mut *tx).await?;
        let Some(end) = page.last() else { break };
        last = end.try_get("number")?;
        for row in &page {
            check.next(&entry(row)?);
        }
    }
    let head = sqlx::query("select number, hash from audit_head where tenant_id = $1").bind(tenant.0);
    let head = head.fetch_optional(&mut *tx).await?;
    let anchor =
        |row: PgRow| Ok::<_, StoreError>(Anchor { number: count(&row, "number")?, hash: row.try_get("hash")? });
    let head = head.map(anchor).transpose()?;
    tx.commit().await?;
    Ok(check.end(head.as_ref()))
}

/// An entry with its reason decrypted.
pub(super) fn open_entry(opener: &Opener, row: &PgRow) -> LoadedRow<ChainEntry> {
    let mut entry = entry(row)?;
    let [_, _, _, session, _, why] = &mut entry.words;
    let session = session.text.as_deref().unwrap_or_default();
    why.text = opener.reason(session, entry.number, why.text.take(), row.try_get("resealed")?)?;
    Ok(entry)
}

fn entry(row: &PgRow) -> LoadedRow<ChainEntry> {
    let mut texts = row.try_get::<Vec<Option<String>>, _>("words")?.into_iter();
    let mut salts = row.try_get::<Vec<Option<Vec<u8>>>, _>("salts")?.into_iter();
    let mut marks = row.try_get::<Vec<Option<Vec<u8>>>, _>("marks")?.into_iter();
    let word =
        |_| HashedText { text: texts.next().flatten(), salt: salts.next().flatten(), mark: marks.next().flatten() };
    Ok(ChainEntry {
        number: count(row, "number")?,
        at_us: row.try_get("at_us")?,
        kind: row.try_get("kind")?,
        words: [(); WORDS].map(word),
        erased_by: decode(row, "erased_by")?,
        previous: row.try_get("previous")?,
        hash: row.try_get("hash")?,
    })
}
