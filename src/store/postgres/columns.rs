//! Rows as columns: the append sends each table's new rows as one array a column. The list of a table's columns is here
//! once, and all that names them is made from it: the arrays, the SQL that unfolds them, what is inserted or set, and
//! what is read back.

use super::follow_up;

/// How a column travels to the database, and what it is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    sql: &'static str,
    stored: Stored,
}

#[derive(Debug, Clone, Copy)]
enum Stored {
    /// For the statement only.
    Not,
    AsIs,
    /// Under another name.
    As(&'static str),
    /// Milliseconds since 1970, as a time under this name.
    Time(&'static str),
    /// Days since 1970, as a date.
    Day,
    Json,
    /// JSON text, as the columns of a follow-up.
    FollowUp,
}

const fn as_is(sql: &'static str) -> Kind {
    Kind { sql, stored: Stored::AsIs }
}

pub(super) const INT2: Kind = as_is("int2");
pub(super) const INT4: Kind = as_is("int4");
pub(super) const INT8: Kind = as_is("int8");
pub(super) const FLOAT4: Kind = as_is("float4");
pub(super) const FLOAT8: Kind = as_is("float8");
pub(super) const BOOL: Kind = as_is("bool");
pub(super) const TEXT: Kind = as_is("text");
pub(super) const BYTEA: Kind = as_is("bytea");
pub(super) const DAY: Kind = Kind { sql: "int4", stored: Stored::Day };
pub(super) const JSON: Kind = Kind { sql: "text", stored: Stored::Json };
pub(super) const FOLLOW_UP: Kind = Kind { sql: "jsonb", stored: Stored::FollowUp };

impl Kind {
    /// Stored as a time in `column`.
    pub(super) const fn time(column: &'static str) -> Self {
        Self { sql: "int8", stored: Stored::Time(column) }
    }

    /// Stored in `column`.
    pub(super) const fn column(self, column: &'static str) -> Self {
        Self { stored: Stored::As(column), ..self }
    }

    /// Not stored.
    pub(super) const fn only_sent(self) -> Self {
        Self { stored: Stored::Not, ..self }
    }

    pub(super) const fn sql(self) -> &'static str {
        self.sql
    }

    /// The name in the table.
    fn stored(self, name: &str) -> Option<String> {
        match self.stored {
            Stored::Not => None,
            Stored::AsIs | Stored::Day | Stored::Json => Some(name.to_owned()),
            Stored::As(column) | Stored::Time(column) => Some(column.to_owned()),
            Stored::FollowUp => Some(follow_up::columns("")),
        }
    }

    /// What is stored, made from the array's element.
    fn value(self, sent: &str) -> String {
        match self.stored {
            Stored::Not | Stored::AsIs | Stored::As(_) => sent.to_owned(),
            Stored::Time(_) => format!("to_timestamp({sent} / 1000.0)"),
            Stored::Day => format!("date '1970-01-01' + {sent}"),
            Stored::Json => format!("{sent}::jsonb"),
            Stored::FollowUp => follow_up::values(),
        }
    }

    /// What was sent, made from what is stored.
    fn read(self, table: &str, name: &'static str) -> Vec<Column> {
        let Some(column) = self.stored(name) else { return Vec::new() };
        let value = match self.stored {
            Stored::FollowUp => return follow_up::read_columns(table),
            Stored::Time(_) => format!("(extract(epoch from {table}.{column}) * 1000)::bigint"),
            Stored::Day => format!("{table}.{column} - date '1970-01-01'"),
            Stored::Json => format!("{table}.{column}::text"),
            _ => format!("{table}.{column}"),
        };
        vec![Column::new(name, self.sql, value)]
    }
}

/// A column of what is read: its name, its type, and what gives it.
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
pub(super) fn unnest(list: &[(&str, Kind)], first: usize) -> String {
    let arrays: Vec<String> =
        list.iter().enumerate().map(|(i, (_, kind))| format!("${}::{}[]", first + i, kind.sql())).collect();
    let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    format!("unnest({}) as x({})", arrays.join(", "), names.join(", "))
}

/// `insert into table (…) select … `: everything that is stored.
pub(super) fn insert(list: &[(&str, Kind)], table: &str) -> String {
    let stored = list.iter().filter_map(|(name, kind)| Some((kind.stored(name)?, kind.value(name))));
    let (columns, values): (Vec<String>, Vec<String>) = stored.unzip();
    format!("insert into {table} ({}) select {}", columns.join(", "), values.join(", "))
}

/// `a = x.a, …`: everything that is stored but `key`.
pub(super) fn set(list: &[(&'static str, Kind)], key: &[&str]) -> String {
    let set = but(list, key)
        .filter_map(|(name, kind)| Some(format!("{} = {}", kind.stored(name)?, kind.value(&format!("x.{name}")))));
    set.collect::<Vec<_>>().join(", ")
}

/// What is read of `table`, under the names by which it was sent: everything that is stored but `left_out`.
pub(super) fn read(list: &[(&'static str, Kind)], table: &str, left_out: &[&str]) -> Vec<Column> {
    but(list, left_out).flat_map(|(name, kind)| kind.read(table, name)).collect()
}

/// `a as b, …`.
pub(super) fn select(columns: &[Column]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| format!("{} as {}", column.value, column.name)).collect();
    columns.join(", ")
}

fn but<'a>(
    list: &'a [(&'static str, Kind)],
    left_out: &'a [&str],
) -> impl Iterator<Item = (&'static str, Kind)> + use<'a> {
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
            pub(super) const LIST: &[(&'static str, $crate::store::postgres::columns::Kind)] =
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
