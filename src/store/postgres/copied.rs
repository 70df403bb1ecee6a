//! Export of many rows as CSV, streamed from the database to a file or a pipe.

use std::{fs, fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt as _, path::Path};

use futures_util::TryStreamExt as _;
use sqlx::{PgConnection, postgres::PgConnectOptions};

use super::connect;
use crate::error::{OpenError, StoreError};

/// Failure of an export.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] OpenError),
    /// The file or pipe cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Database(error.into())
    }
}

impl From<sqlx::Error> for CopyError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

/// Calls to export: those of the tenant, judged from `since` on and before `until`, as PostgreSQL reads a time.
#[derive(Debug)]
pub struct CallRange<'a> {
    pub tenant: &'a str,
    pub since: &'a str,
    pub until: &'a str,
}

/// Writes the calls of a range as CSV with a header, in the columns of the view `calls`; returns the number of bytes. A
/// text that a spreadsheet would read as a formula has an apostrophe in front.
///
/// # Errors
/// [`CopyError`]: what was written so far is incomplete.
pub async fn copy_calls(
    options: PgConnectOptions,
    range: &CallRange<'_>,
    to: &mut (impl Write + Send),
) -> Result<u64, CopyError> {
    let settings = [("search_path", super::SCHEMA), ("default_transaction_read_only", "on"), ("TimeZone", "UTC")];
    let (mut conn, _) = connect::first(options.options(settings).application_name("callgate export")).await?;
    let columns: Vec<(String, bool)> = sqlx::query_as(
        "select attname::text, atttypid = 'text'::regtype from pg_attribute
         where attrelid = 'calls'::regclass and attnum > 0 and not attisdropped order by attnum",
    )
    .fetch_all(&mut conn)
    .await?;
    let column = |(name, is_text): &(String, bool)| match is_text {
        true => format!("case when {name} ~ '^[=+@\\t\\r\\n-]' then '''' || {name} else {name} end as {name}"),
        false => name.clone(),
    };
    let columns: Vec<String> = columns.iter().map(column).collect();
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let copy = format!(
        "copy (select {} from calls where tenant = {} and judged_at >= {}::timestamptz and judged_at < {}::timestamptz)
         to stdout (format csv, header)",
        columns.join(", "),
        literal(range.tenant),
        literal(range.since),
        literal(range.until),
    );
    copy_out(&mut conn, &copy, to).await
}

/// Writes a partition to `PARTITION.csv` in the folder, which its owner alone may read. The file appears once it is
/// complete and on disk; one of an interrupted run is replaced.
pub(super) async fn copy_partition(conn: &mut PgConnection, partition: &str, folder: &Path) -> Result<(), CopyError> {
    let (part, whole) = (folder.join(format!("{partition}.csv.part")), folder.join(format!("{partition}.csv")));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    let copy = format!("copy {}.{partition} to stdout (format csv, header)", super::SCHEMA);
    copy_out(conn, &copy, &mut file).await?;
    file.sync_all()?;
    fs::rename(&part, &whole)?;
    fs::File::open(folder)?.sync_all()?;
    Ok(())
}

/// Writes the result of a `copy … to stdout` as it arrives; returns the number of bytes.
pub(super) async fn copy_out(
    conn: &mut PgConnection,
    copy: &str,
    to: &mut (impl Write + Send),
) -> Result<u64, CopyError> {
    let mut rows = conn.copy_out_raw(copy).await?;
    let mut bytes = 0;
    while let Some(chunk) = rows.try_next().await? {
        to.write_all(&chunk)?;
        bytes += chunk.len() as u64;
    }
    to.flush()?;
    Ok(bytes)
}
