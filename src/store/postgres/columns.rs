//! Column definitions: wire format, storage and reads; and the SQL generated from a table's list of them.

use super::follow_up;

/// Wire format and storage of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnKind {
    sql: &'static str,
    oid: u32,
    stored: StoredColumn,
    is_rare: bool,
    is_sealed: bool,
}

#[derive(Debug, Clone, Copy)]
enum StoredColumn {
    /// Not stored; for the statement only.
    Not,
    AsIs,
    /// Under another name.
    As(&'static str),
    /// Milliseconds since 1970, as a time under this name.
    Time(&'static str),
    /// Days since 1970, as a date.
    Day,
    Json,
    /// JSON, as the columns of a follow-up.
    FollowUp,
}

/// Conversion of a value before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireConversion {
    AsIs,
    Time,
    Day,
    Json,
}

const fn column_kind(sql: &'static str, oid: u32, stored: StoredColumn) -> ColumnKind {
    ColumnKind { sql, oid, stored, is_rare: false, is_sealed: false }
}

// With the numbers by which Postgres has always known its own types.
pub(super) const INT2: ColumnKind = column_kind("int2", 21, StoredColumn::AsIs);
pub(super) const INT4: ColumnKind = column_kind("int4", 23, StoredColumn::AsIs);
pub(super) const INT8: ColumnKind = column_kind("int8", 20, StoredColumn::AsIs);
pub(super) const FLOAT4: ColumnKind = column_kind("float4", 700, StoredColumn::AsIs);
pub(super) const FLOAT8: ColumnKind = column_kind("float8", 701, StoredColumn::AsIs);
pub(super) const BOOL: ColumnKind = column_kind("bool", 16, StoredColumn::AsIs);
pub(super) const TEXT: ColumnKind = column_kind("text", 25, StoredColumn::AsIs);
pub(super) const BYTEA: ColumnKind = column_kind("bytea", 17, StoredColumn::AsIs);
pub(super) const DAY: ColumnKind = column_kind("date", 1_082, StoredColumn::Day);
pub(super) const JSON: ColumnKind = column_kind("jsonb", 3_802, StoredColumn::Json);
pub(super) const FOLLOW_UP: ColumnKind = column_kind("jsonb", 3_802, StoredColumn::FollowUp);

impl ColumnKind {
    /// Stored as a time in `column`.
    pub(super) const fn time(column: &'static str) -> Self {
        column_kind("timestamptz", 1_184, StoredColumn::Time(column))
    }

    /// Stored in `column`.
    pub(super) const fn column(self, column: &'static str) -> Self {
        Self { stored: StoredColumn::As(column), ..self }
    }

    /// Not stored.
    pub(super) const fn as_sent_only(self) -> Self {
        Self { stored: StoredColumn::Not, ..self }
    }

    /// Empty in most rows, which are sent without it.
    pub(super) const fn rare(self) -> Self {
        Self { is_rare: true, ..self }
    }

    /// A text that may be encrypted, as `table.column`.
    pub(super) const fn as_encryptable(self) -> Self {
        Self { is_sealed: true, ..self }
    }

    pub(super) const fn is_rare(self) -> bool {
        self.is_rare
    }

    pub(super) const fn sql(self) -> &'static str {
        self.sql
    }

    pub(super) const fn oid(self) -> u32 {
        self.oid
    }

    pub(super) const fn wire(self) -> WireConversion {
        match self.stored {
            StoredColumn::Time(_) => WireConversion::Time,
            StoredColumn::Day => WireConversion::Day,
            StoredColumn::Json | StoredColumn::FollowUp => WireConversion::Json,
            StoredColumn::Not | StoredColumn::AsIs | StoredColumn::As(_) => WireConversion::AsIs,
        }
    }

    /// Its name in the table.
    fn stored_name(self, name: &str) -> Option<String> {
        match self.stored {
            StoredColumn::Not => None,
            StoredColumn::AsIs | StoredColumn::Day | StoredColumn::Json => Some(name.to_owned()),
            StoredColumn::As(column) | StoredColumn::Time(column) => Some(column.to_owned()),
            StoredColumn::FollowUp => Some(follow_up::columns("")),
        }
    }

    /// The stored value of a sent row `x`.
    fn value(self, name: &str) -> String {
        match self.stored {
            StoredColumn::FollowUp => follow_up::values(),
            _ => format!("x.{name}"),
        }
    }

    /// The type of what is read back.
    const fn read_sql(self) -> &'static str {
        match self.stored {
            StoredColumn::Time(_) => "int8",
            StoredColumn::Day => "int4",
            StoredColumn::Json => "text",
            _ => self.sql,
        }
    }

    /// The sent value, restored from the table.
    fn read(self, table: &str, name: &'static str) -> Vec<Column> {
        let Some(column) = self.stored_name(name) else { return Vec::new() };
        let value = match self.stored {
            StoredColumn::FollowUp => return follow_up::read_columns(table),
            StoredColumn::Time(_) => format!("(extract(epoch from {table}.{column}) * 1000)::bigint"),
            StoredColumn::Day => format!("{table}.{column} - date '1970-01-01'"),
            StoredColumn::Json => format!("{table}.{column}::text"),
            _ => format!("{table}.{column}"),
        };
        vec![Column::new(name, self.read_sql(), value)]
    }
}

/// A read column: name, type, and expression.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
    pub(super) value: String,
}

impl Column {
    pub(super) fn new(name: &'static str, sql: &'static str, value: impl Into<String>) -> Self {
        Self { name, sql, value: value.into() }
    }
}

/// `unnest($first::…[], …) as x(…)`, with its parameters numbered from `first`.
pub(super) fn unnest(list: &[(&str, ColumnKind)], first: usize) -> String {
    let arrays: Vec<String> =
        list.iter().enumerate().map(|(i, (_, kind))| format!("${}::{}[]", first + i, kind.sql())).collect();
    let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    format!("unnest({}) as x({})", arrays.join(", "), names.join(", "))
}

/// `insert into table (…) select …` of rows `x`: all stored columns, with or without rare ones.
pub(super) fn insert(list: &[(&str, ColumnKind)], table: &str, with_rare: bool) -> String {
    let sent = list.iter().filter(|(_, kind)| with_rare || !kind.is_rare());
    let stored = sent.filter_map(|(name, kind)| Some((kind.stored_name(name)?, kind.value(name))));
    let (columns, values): (Vec<String>, Vec<String>) = stored.unzip();
    format!("insert into {table} ({}) select {}", columns.join(", "), values.join(", "))
}

/// `a text, …`: the sent attributes, with or without rare ones.
pub(super) fn attributes(list: &[(&str, ColumnKind)], with_rare: bool) -> String {
    let sent = list.iter().filter(|(_, kind)| with_rare || !kind.is_rare());
    sent.map(|(name, kind)| format!("{name} {}", kind.sql())).collect::<Vec<_>>().join(", ")
}

/// `a = x.a, …`: all stored columns except `key`.
pub(super) fn set(list: &[(&'static str, ColumnKind)], key: &[&str]) -> String {
    let set =
        but(list, key).filter_map(|(name, kind)| Some(format!("{} = {}", kind.stored_name(name)?, kind.value(name))));
    set.collect::<Vec<_>>().join(", ")
}

/// All stored columns of `table` under their sent names, except `left_out`.
pub(super) fn read(list: &[(&'static str, ColumnKind)], table: &str, left_out: &[&str]) -> Vec<Column> {
    but(list, left_out).flat_map(|(name, kind)| kind.read(table, name)).collect()
}

/// All stored columns of `table` for export, under their own names, except those in `left_out`.
pub(super) fn export_columns(list: &[(&'static str, ColumnKind)], table: &str, left_out: &str) -> String {
    let left_out: Vec<&str> = left_out.split_whitespace().collect();
    let columns = but(list, &left_out).filter_map(|(name, kind)| Some((kind.stored_name(name)?, kind.sql)));
    let value = |(column, sql): (String, &str)| match sql {
        "bytea" => format!("encode({table}.{column}, 'hex') as {column}"),
        _ => format!("{table}.{column}"),
    };
    columns.map(value).collect::<Vec<_>>().join(", ")
}

/// The columns with texts that may be encrypted, with their types.
pub(super) fn encryptable_columns(
    list: &[(&'static str, ColumnKind)],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    list.iter().filter(|(_, kind)| kind.is_sealed).map(|(name, kind)| (*name, kind.sql))
}

/// `a as b, …`.
pub(super) fn select(columns: &[Column]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| format!("{} as {}", column.value, column.name)).collect();
    columns.join(", ")
}

fn but<'a>(
    list: &'a [(&'static str, ColumnKind)],
    left_out: &'a [&str],
) -> impl Iterator<Item = (&'static str, ColumnKind)> + use<'a> {
    let unknown = left_out.iter().find(|left_out| !list.iter().any(|(name, _)| name == *left_out));
    assert!(unknown.is_none(), "there is no column {unknown:?} to leave out");
    list.iter().copied().filter(|(name, _)| !left_out.contains(name))
}

/// Defines a struct of column vectors with its `LIST`, `push(Row)` and `bind(query)`.
macro_rules! columns {
    ($(#[$doc:meta])* $columns:ident / $row:ident { $($name:ident: $type:ty => $kind:expr),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $columns {
            rows: usize,
            $($name: Vec<$type>,)+
        }

        #[derive(Debug)]
        pub(super) struct $row {
            $(pub(super) $name: $type,)+
        }

        #[allow(dead_code, reason = "not every table needs all of it")]
        impl $columns {
            pub(super) const LIST: &[(&'static str, $crate::postgres::columns::ColumnKind)] =
                &[$((stringify!($name), $kind)),+];

            pub(super) fn push(&mut self, row: $row) {
                self.rows += 1;
                $(self.$name.push(row.$name);)+
            }

            pub(super) const fn is_empty(&self) -> bool {
                self.rows == 0
            }

            pub(super) fn bind<'q>(
                &'q self,
                query: sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>,
            ) -> sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments> {
                query$(.bind(&self.$name))+
            }
        }
    };
}
pub(super) use columns;
