//! The two forms of the append's statements.

use super::super::columns::{Kind, insert};

pub(super) type List = &'static [(&'static str, Kind)];

/// Whose functions they are. On a distributed database a call is the business of the one node that has the shard it
/// names, and every statement names one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    OneServer,
    Distributed,
}

impl Form {
    /// A part of the append: skipped without rows. `statement` is one over rows `x`; `short` follows when it has
    /// changed fewer than there are.
    ///
    /// On a distributed database each row is a statement of its own, which names its shard by values. (One that
    /// selects what it inserts is not sent to the shard as a whole; it counts rows that were not inserted, and does
    /// not say by the usual SQLSTATE what is there already.)
    pub(super) fn part(self, argument: &str, statement: &str, short: &str) -> String {
        match self {
            Self::OneServer => format!(
                "  if {argument} is not null then
    {statement};
    get diagnostics n = row_count;
    if n <> cardinality({argument}) then {short}; end if;
  end if;\n"
            ),
            Self::Distributed => Self::each(
                argument,
                &format!(
                    "{statement};
      get diagnostics n = row_count;
      if n = 0 then {short}; end if"
                ),
            ),
        }
    }

    /// An insert of rows `x` of `argument`.
    pub(super) fn insert(self, argument: &str, list: List, table: &str, with_rare: bool) -> String {
        let insert = insert(list, table, with_rare);
        match self {
            Self::OneServer => insert + &self.from(argument),
            Self::Distributed => insert.replacen(" select ", " values (", 1) + ")",
        }
    }

    /// Where an update has its rows `x` from.
    pub(super) fn from(self, argument: &str) -> String {
        match self {
            Self::OneServer => format!(" from unnest({argument}) x"),
            Self::Distributed => String::new(),
        }
    }

    /// What `body` does with each row `x` of `argument`, whose place is `i`.
    pub(super) fn each(argument: &str, body: &str) -> String {
        format!(
            "  for i in 1 .. coalesce(cardinality({argument}), 0) loop
    declare x record := {argument}[i];
    begin
      {body};
    end;
  end loop;\n"
        )
    }
}
