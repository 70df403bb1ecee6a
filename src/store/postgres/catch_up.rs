//! Catch-up of known trees after a conflict: reads only the events since.

use std::sync::LazyLock;

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    columns::{self, Column},
    controls,
    decode::{LoadedRow, at, count, decode},
    load::{self, HEAD, OUTCOMES, ShardSplit, TREES, TreeRows, add_tree_index, same_session_condition},
    row::{CallRow, OutcomeRow},
    row_union::{self, RowSet},
    sealed::{self, Opener},
};
use callgate_core::domain::{
    budget::BudgetSpend,
    event::Event,
    ids::{SessionId, TenantId},
    time::Timestamp,
    tree::CallTree,
};

/// First part after the common ones.
const CONTROLS: i32 = OUTCOMES + 1;

/// A known tree: tenant, root, epoch, version, start, and the opener of its values.
pub(super) type KnownTree = (TenantId, SessionId, i32, (u64, Timestamp), Opener);

/// Events since then, and the tree's current row.
#[derive(Debug)]
pub(super) struct TreeUpdate {
    version: u64,
    spent: BudgetSpend,
    open_calls: u32,
    due: Option<Timestamp>,
    events: Vec<Event>,
}

static SINCE: LazyLock<String> = LazyLock::new(|| {
    let between = |table: &str| {
        format!("{} and {table}.seq > s.known and {table}.seq <= s.version", same_session_condition(table, "s"))
    };
    let left_out =
        ["shard", "tenant_id", "epoch", "root_id", "rule", "level", "justification", "coerced", "self_corrections"];
    let mut calls = columns::read(CallRow::LIST, "c", &left_out);
    calls.extend([
        Column::new("looks", "text", "c.arguments"),
        Column::new("parent_id", "text", "s.parent_id"),
        Column::new("depth", "int4", "s.depth"),
    ]);
    let left_out = ["shard", "tenant_id", "epoch", "root_id", "result", "error_message"];
    let mut outcomes = columns::read(OutcomeRow::LIST, "o", &left_out);
    // Results only of kept answers.
    outcomes.push(Column::new("result", "text", "case when o.kept then o.result end"));
    let parts = [
        load::head(),
        RowSet::new(add_tree_index(calls, "s"), format!("s join #call c on {}", between("c"))),
        RowSet::new(add_tree_index(outcomes, "s"), format!("s join #outcome o on {}", between("o"))),
        load::control_events(),
    ];
    format!("with {TREES} {}", row_union::union(&parts))
});

/// The events since the trees were known; none for one that must be reloaded.
pub(super) async fn since(
    conn: &mut PgConnection,
    known: &[KnownTree],
    cut: ShardSplit,
) -> LoadedRow<Vec<LoadedRow<Option<TreeUpdate>>>> {
    let mut all: Vec<LoadedRow<Option<TreeUpdate>>> = known.iter().map(|_| Ok(None)).collect();
    for (day, born) in load::by_month(known.iter().map(|(_, _, day, ..)| Some(*day))) {
        let keys: Vec<_> = born.iter().map(|at| (known[*at].0, &known[*at].1, known[*at].3.0)).collect();
        let rows = load::read(conn, &load::born_in(&SINCE, day), &keys, cut).await?;
        for (place, rows) in born.into_iter().zip(rows) {
            all[place] = of_tree(&known[place], &rows);
        }
    }
    Ok(all)
}

fn of_tree((_, _, epoch, (_, began), opener): &KnownTree, rows: &TreeRows) -> LoadedRow<Option<TreeUpdate>> {
    let Some(head) = rows.get(&HEAD).and_then(|head| head.first()) else { return Ok(None) };
    // One that began at another time only has the name of the one that is known.
    if head.try_get::<i32, _>("day")? != *epoch || at(head, "started_ms")? != *began {
        return Ok(None);
    }
    let mut events = load::events(rows, opener, whole)?;
    let controls = controls::read(rows.get(&CONTROLS).map(Vec::as_slice).unwrap_or_default(), opener)?;
    events.extend(controls.into_iter().map(|event| Event::Controlled(Box::new(event))));
    events.sort_by_key(Event::seq);
    Ok(Some(TreeUpdate {
        version: count(head, "version")?,
        spent: load::decode_spend(head)?,
        open_calls: load::open_calls(head)?,
        due: decode(head, "due_ms")?,
        events,
    }))
}

/// Adds the fields that a full load takes from other rows.
fn whole(event: &mut Event, row: &PgRow, opener: &Opener) -> LoadedRow<()> {
    match event {
        Event::Judged(judged) => judged.uses = controls::uses_of(row.try_get("uses")?)?,
        Event::Settled(settled) => {
            let result = row.try_get("result")?;
            settled.result = opener.optional_text(sealed::RESULT, settled.session.as_str(), settled.seq, result)?;
        }
        Event::Controlled(_) => {}
    }
    Ok(())
}

impl TreeUpdate {
    /// The tree as stored now; none when it must be reloaded.
    pub(super) fn fold(self, mut tree: CallTree) -> Option<CallTree> {
        let is_whole = tree.catch_up(&self.events);
        // The sweep time moves without an event.
        tree.due = self.due;
        // Another replica may have settled a call that this tree has evicted, so that totals differ.
        let is_stored = tree.version == self.version && tree.spent == self.spent && tree.open_calls == self.open_calls;
        (is_whole && is_stored).then_some(tree)
    }
}
