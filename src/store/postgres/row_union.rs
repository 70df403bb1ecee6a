//! Union of row kinds in one statement: one snapshot and one round trip.

use std::collections::BTreeMap;

use super::columns::Column;

/// Rows of one kind.
#[derive(Debug)]
pub(super) struct RowSet {
    pub(super) columns: Vec<Column>,
    /// Text after `from`.
    pub(super) from: String,
}

impl RowSet {
    pub(super) fn new(columns: Vec<Column>, from: impl Into<String>) -> Self {
        Self { columns, from: from.into() }
    }
}

/// The union of all parts, numbered by `part`: columns of other parts are null.
pub(super) fn union(parts: &[RowSet]) -> String {
    let mut all: BTreeMap<&str, &str> = BTreeMap::new();
    for column in parts.iter().flat_map(|part| &part.columns) {
        let known = all.insert(column.name, column.sql);
        assert!(known.is_none_or(|known| known == column.sql), "{} has two types", column.name);
    }
    let selects = parts.iter().enumerate().map(|(no, part)| {
        let values = all.iter().map(|(name, sql)| {
            let own = part.columns.iter().find(|column| column.name == *name);
            own.map_or_else(|| format!("null::{sql} as {name}"), |column| format!("{} as {name}", column.value))
        });
        format!("(select {no} as part, {} from {})", values.collect::<Vec<_>>().join(", "), part.from)
    });
    selects.collect::<Vec<_>>().join(" union all ")
}
