//! The two forms of the append's statements.

use super::{
    super::columns::{Kind, insert},
    functions::ARGUMENTS,
};

pub(super) type List = &'static [(&'static str, Kind)];

/// Whose functions they are. On a distributed database a call is the business of the one node that has the shard it
/// names, and every statement names one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    OneServer,
    Distributed,
}

/// Holds for a row `x` of a tenant that the batch is for. Where one does not, its part moves fewer rows than it should.
pub(super) const OF_TENANTS: &str = "x.tenant_id = any(of_tenants)";

/// What belongs to a call tree of the batch, by tenant and root. Counters do not: several trees add to one at once.
const OF_A_TREE: [&str; 8] =
    ["sessions", "ledger", "new_ledger", "calls", "full_calls", "outcomes", "full_outcomes", "controls"];

impl Form {
    /// Refuses a row whose tenant is not its call tree's. Rows of a tenant that the batch is not for are refused by
    /// each part; so what is left to look for is a row of one of its tenants with a tree of another, and a batch of one
    /// tenant has none. Over many nodes the parts go by the key alone, and all is looked for here.
    pub(super) fn foreign(self) -> String {
        let other_tree = OF_A_TREE.map(|argument| {
            format!(
                "exists (select from unnest({argument}) x where (x.tenant_id, x.root_id) not in (
      select t.tenant_id, t.root_id from unnest(trees) t union all
      select t.tenant_id, t.root_id from unnest(new_trees) t))"
            )
        });
        let refuse = |condition: &str| {
            format!(
                "  if {condition} then
    raise sqlstate 'CG002' using message = 'a row of another tenant than its call tree';
  end if;\n"
            )
        };
        let mixed = refuse(&format!("cardinality(of_tenants) > 1 and ({})", other_tree.join("\n    or ")));
        match self {
            Self::OneServer => mixed,
            Self::Distributed => {
                let other = |(argument, ..): (&str, List, bool)| {
                    format!("exists (select from unnest({argument}) x where not {OF_TENANTS})")
                };
                mixed + &refuse(&ARGUMENTS.map(other).join("\n    or "))
            }
        }
    }

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
            Self::OneServer => insert + &self.from(argument) + " where " + OF_TENANTS,
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
