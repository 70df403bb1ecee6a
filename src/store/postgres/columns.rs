//! Rows as columns: the append sends each table's new rows as one array a column, and this keeps the list of columns,
//! the arrays and the SQL that unfolds them in one place.

/// Defines a struct of column vectors with `push(Row)`, `bind(query)` and the SQL list `unnest($n, …)`.
macro_rules! columns {
    ($(#[$doc:meta])* $columns:ident / $row:ident { $($name:ident: $type:ty => $sql:literal),+ $(,)? }) => {
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
            /// How many parameters it binds.
            pub(super) const WIDTH: usize = [$($sql),+].len();

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

            /// `unnest($first::…[], …) as x(…)`, with its parameters numbered from `first`.
            pub(super) fn unnest(first: usize) -> String {
                let types = [$($sql),+];
                let names = [$(stringify!($name)),+];
                let arrays: Vec<String> =
                    types.iter().enumerate().map(|(i, sql)| format!("${}::{sql}[]", first + i)).collect();
                format!("unnest({}) as x({})", arrays.join(", "), names.join(", "))
            }
        }
    };
}
pub(super) use columns;
