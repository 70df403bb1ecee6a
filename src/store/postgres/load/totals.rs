//! Totals of a cold tree, which its last events alone do not give.

use std::collections::BTreeMap;

use sqlx::{Row as _, postgres::PgRow};

use super::{OUTCOMES, TreeRows, same_session_condition};
use crate::postgres::{
    codes::{CANCELLED, CHECK, ERROR, READ, RUNNING, SUCCESS, WRITE},
    columns::Column,
    controls::{self, EVENTS_MAX},
    decode::{LoadedRow, at, corrupt, count, decode, name},
    row_union::RowSet,
    sealed::{self, Opener, length_condition},
};
use callgate_core::domain::{
    budget::BudgetSpend,
    effect::Resource,
    fingerprint::{Fingerprint, ResultDigest},
    ids::{SessionId, ToolName},
    previous::IDLE_MS,
    tree::{CHANGES_MAX, ChangedResource, KEPT_BYTES_MAX, KEPT_MAX, KeptText, RunTotals, SEEN_MAX, Totals},
};

/// Part indexes.
const SESSIONS: i32 = OUTCOMES + 1;
const BY_TOOL: i32 = SESSIONS + 1;
const SEEN: i32 = BY_TOOL + 1;
const FORGOTTEN: i32 = SEEN + 1;
const CONTROLS: i32 = FORGOTTEN + 1;
const USES: i32 = CONTROLS + 1;
const CHANGES: i32 = USES + 1;
const KEPT: i32 = CHANGES + 1;

fn columns<const N: usize>(columns: [(&'static str, &'static str, &'static str); N]) -> Vec<Column> {
    columns.map(|(name, sql, value)| Column::new(name, sql, value)).into()
}

pub(super) fn row_sets(rows_max: usize) -> [RowSet; 8] {
    [
        sessions(),
        by_tool(),
        seen_results(),
        forgotten_change(rows_max),
        control_events(),
        uses(),
        changes(),
        dependent_answers(),
    ]
}

/// Every session with its current run's spending: the rows since the run's first event.
fn sessions() -> RowSet {
    let (c, o, settled) =
        (same_session_condition("c", "s"), same_session_condition("o", "s"), same_session_condition("o", "c"));
    let listed = columns([
        ("no", "int8", "s.no"),
        ("session_id", "text", "s.session_id"),
        ("parent_id", "text", "s.parent_id"),
        ("depth", "int4", "s.depth"),
        ("started_ms", "int8", "r.started_ms"),
        ("idle_ms", "int8", "i.idle_ms"),
        ("steps", "int8", "r.steps"),
        ("calls", "int8", "r.calls"),
        ("cost_micros", "int8", "r.cost_micros"),
        ("tokens", "int8", "r.tokens"),
        ("outcome_cost", "int8", "o.cost_micros"),
        ("outcome_tokens", "int8", "o.tokens"),
        ("unsettled", "int8", "u.unsettled"),
        ("by_tool", "text", "b.by_tool"),
    ]);
    let from = format!(
        "s left join lateral (select run_from from #call c where {c} order by seq desc limit 1) l on true
         left join lateral (
           select (extract(epoch from min(c.at)) * 1000)::bigint as started_ms,
             count(*) filter (where c.round = 1 and not c.terminal and not c.waited) as steps,
             count(c.attempt) filter (where not c.terminal) as calls,
             coalesce(sum(c.cost_micros), 0)::bigint as cost_micros,
             (coalesce(sum(c.input_tokens), 0) + coalesce(sum(c.output_tokens), 0)
               + coalesce(sum(c.cache_read_tokens), 0) + coalesce(sum(c.cache_write_tokens), 0))::bigint as tokens
           from #call c where {c} and c.seq >= l.run_from) r on true
         left join lateral (
           select coalesce(sum(g.gap_ms) filter (where g.again or g.gap_ms > {IDLE_MS}), 0)::bigint as idle_ms from (
             select x.again, (extract(epoch from x.at - lag(x.at) over (order by x.seq)) * 1000)::bigint as gap_ms
             from (
               select c.seq, c.at, c.round > 1 as again from #call c where {c} and c.seq >= l.run_from
               union all select o.seq, o.at, false from #outcome o where {o} and o.permit_seq >= l.run_from) x
           ) g) i on true
         left join lateral (
           select coalesce(sum(o.cost_micros), 0)::bigint as cost_micros,
             coalesce(sum(coalesce(o.input_tokens, 0) + coalesce(o.output_tokens, 0)
               + coalesce(o.cache_read_tokens, 0) + coalesce(o.cache_write_tokens, 0)), 0)::bigint as tokens
           from #outcome o where {o} and o.permit_seq >= l.run_from) o on true
         left join lateral (
           select coalesce(sum(c.reserved_micros), 0)::bigint as unsettled from #call c
           where {c} and c.seq >= l.run_from and c.attempt is not null and c.reserved_micros > 0 and not exists (
             select from #outcome o where {settled} and o.permit_seq = c.seq
               and o.status in ({SUCCESS}, {ERROR}, {CANCELLED}))) u on true
         left join lateral (select jsonb_object_agg(x.tool, x.calls)::text as by_tool from (
           select c.tool, count(*) as calls from #call c where {c} and c.seq >= l.run_from and c.attempt is not null
           group by 1) x) b on true"
    );
    RowSet::new(listed, from)
}

fn by_tool() -> RowSet {
    let from = format!(
        "(select s.no, c.tool, count(*) as calls from s join #call c on {} where c.attempt is not null
          group by 1, 2) b",
        same_session_condition("c", "s")
    );
    RowSet::new(columns([("no", "int8", "b.no"), ("tool", "text", "b.tool"), ("calls", "int8", "b.calls")]), from)
}

/// Known results of each session.
fn seen_results() -> RowSet {
    let from = format!(
        "s cross join lateral (
           select o.seq, c.fingerprint, o.digest from #call c join #outcome o on {} and o.permit_seq = c.seq
           where {} and o.status = {SUCCESS} and o.digest is not null order by c.seq desc limit {SEEN_MAX}) x",
        same_session_condition("o", "c"),
        same_session_condition("c", "s")
    );
    let listed = columns([
        ("no", "int8", "s.no"),
        ("session_id", "text", "s.session_id"),
        ("seq", "int8", "x.seq"),
        ("fingerprint", "bytea", "x.fingerprint"),
        ("digest", "bytea", "x.digest"),
    ]);
    RowSet::new(listed, from)
}

/// The latest possible change among the rows that are not read. The estimate is conservative: a forgotten change only
/// lets a call run again. Open calls are read.
fn forgotten_change(rows_max: usize) -> RowSet {
    let (c, of_c, of_s, of_o, f) = (
        same_session_condition("c", "s"),
        same_session_condition("o", "c"),
        same_session_condition("o", "s"),
        same_session_condition("c", "o"),
        same_session_condition("f", "c"),
    );
    // Successes are scanned from the newest on, so that only few calls are joined.
    let from = format!(
        "s cross join lateral (select c.seq from #call c where {c} order by c.seq desc offset {} limit 1) w
         cross join lateral (select greatest(
           (select o.seq from (
              select o.* from #outcome o where {of_s} and o.permit_seq < w.seq and o.status = {SUCCESS}
                and exists (select from #call c where {c} and c.seq < w.seq and c.effect not in ({READ}, {CHECK}))
              order by o.seq desc offset 0) o
            where exists (select from #call c where {of_o} and c.seq = o.permit_seq
              and c.effect not in ({READ}, {CHECK}))
            limit 1),
           (select max(greatest(o.seq, c.seq)) from #call c left join #outcome o on {of_c} and o.permit_seq = c.seq
            where {c} and c.seq < w.seq and c.attempt is not null and c.effect = {WRITE}
              and coalesce(o.status, {RUNNING}) not in ({SUCCESS}, {ERROR}, {CANCELLED})
              and exists (select from #outcome f where {f} and f.permit_seq = c.seq
                and f.status > {RUNNING}))) as seq) f",
        rows_max - 1
    );
    RowSet::new(columns([("no", "int8", "s.no"), ("seq", "int8", "f.seq")]), from)
}

/// True when a call was permitted with the edited arguments of the answer `e`.
const USED: &str = "case when e.kind = 'answered' and e.detail -> 'edit' is not null then exists (
    select from call c where c.shard = e.shard and c.tenant_id = e.tenant_id and c.epoch = e.epoch
      and c.session_id = e.session_id and c.seq > e.seq and c.attempt is not null
      and encode(c.args_digest, 'hex') = e.detail #>> '{edit,digest}') end";

/// Control events after the last known event.
pub(in crate::postgres) fn control_events() -> RowSet {
    let from = format!(
        "t cross join lateral (
           select e.* from session_event e where e.shard = t.shard and e.tenant_id = t.tenant_id
             and e.root_id = t.root_id and e.epoch = t.epoch and e.seq > t.known order by e.seq desc
           limit {EVENTS_MAX}) e"
    );
    let listed = columns([
        ("no", "int8", "t.no"),
        ("seq", "int8", "e.seq"),
        ("session_id", "text", "e.session_id"),
        ("at_ms", "int8", "(extract(epoch from e.at) * 1000)::bigint"),
        ("kind", "text", "e.kind"),
        ("actor", "text", "e.actor"),
        ("reason", "text", "e.reason"),
        // A tree knows chosen arguments by their digest.
        ("detail", "text", "(e.detail #- '{edit,arguments}')::text"),
        ("is_used", "bool", USED),
    ]);
    RowSet::new(listed, from)
}

/// The last use of each tier and grant.
fn uses() -> RowSet {
    let from = format!(
        "(select distinct on (s.no, u ->> 'key') s.no, u::text as used from s join #call c on {} and c.uses is not null
          cross join lateral jsonb_array_elements(c.uses) u order by s.no, u ->> 'key', c.seq desc) u",
        same_session_condition("c", "s")
    );
    RowSet::new(columns([("no", "int8", "u.no"), ("used", "text", "u.used")]), from)
}

/// Resources changed by writes without a clean failure.
fn changes() -> RowSet {
    let from = format!(
        "s cross join lateral (
           select c.seq, c.tool, c.fingerprint, c.resource from #call c
           where {} and c.effect = {WRITE} and c.resource is not null and c.attempt is not null and not exists (
             select from #outcome o where {} and o.permit_seq = c.seq and o.status in ({ERROR}, {CANCELLED}))
           order by c.seq desc limit {CHANGES_MAX}) w",
        same_session_condition("c", "s"),
        same_session_condition("o", "c")
    );
    let listed = columns([
        ("no", "int8", "s.no"),
        ("session_id", "text", "s.session_id"),
        ("seq", "int8", "w.seq"),
        ("tool", "text", "w.tool"),
        ("fingerprint", "bytea", "w.fingerprint"),
        ("resource", "text", "w.resource"),
    ]);
    RowSet::new(listed, from)
}

/// Kept answers of dependent calls.
fn dependent_answers() -> RowSet {
    let from = format!(
        "s cross join lateral (
           select o.seq, o.permit_seq, case when {} then o.result end as result
           from #outcome o where {} and o.kept order by o.seq desc limit {KEPT_MAX}) o
         join #call c on {} and c.seq = o.permit_seq",
        length_condition("o.result", KEPT_BYTES_MAX),
        same_session_condition("o", "s"),
        same_session_condition("c", "s")
    );
    let listed = columns([
        ("no", "int8", "s.no"),
        ("seq", "int8", "o.seq"),
        ("permit_seq", "int8", "o.permit_seq"),
        ("session_id", "text", "s.session_id"),
        ("tool", "text", "c.tool"),
        ("result", "text", "o.result"),
    ]);
    let mut listed = listed;
    listed.push(Column::new(
        "arguments",
        "text",
        format!("case when {} then c.arguments end", length_condition("c.arguments", KEPT_BYTES_MAX)),
    ));
    RowSet::new(listed, from)
}

/// Totals of one tree's rows.
pub(super) fn read(head: &PgRow, rows: &TreeRows, opener: &Opener) -> LoadedRow<Totals> {
    let of = |part: i32| rows.get(&part).map(Vec::as_slice).unwrap_or_default();
    let forgotten: Vec<u64> = of(FORGOTTEN).iter().map(|row| count(row, "seq")).collect::<LoadedRow<_>>()?;
    Ok(Totals {
        version: count(head, "version")?,
        last_at: at(head, "last_ms")?,
        spent: decode_spend(head)?,
        by_tool: of(BY_TOOL).iter().map(by_tool_of).collect::<LoadedRow<_>>()?,
        open_calls: open_calls(head)?,
        due: decode(head, "due_ms")?,
        sessions: of(SESSIONS).iter().map(session_totals).collect::<LoadedRow<_>>()?,
        seen: in_order(of(SEEN), usize::MAX, seen_of)?,
        forgotten_change: forgotten.into_iter().max().unwrap_or(0),
        controls: controls::read(of(CONTROLS), opener)?,
        uses: of(USES).iter().map(controls::decode_use).collect::<LoadedRow<_>>()?,
        changes: in_order(of(CHANGES), CHANGES_MAX, |row| decode_changed_resource(row, opener))?
            .into_iter()
            .filter(|changed| changed.resource.is_named())
            .collect(),
        kept: in_order(of(KEPT), KEPT_MAX, |row| kept_of(row, opener))?,
    })
}

/// The newest rows by their `seq`, oldest first.
fn in_order<T>(rows: &[PgRow], max: usize, read: impl Fn(&PgRow) -> LoadedRow<T>) -> LoadedRow<Vec<T>> {
    let numbered = rows.iter().map(|row| Ok((count(row, "seq")?, row)));
    let mut numbered: Vec<(u64, &PgRow)> = numbered.collect::<LoadedRow<_>>()?;
    numbered.sort_by_key(|(seq, _)| *seq);
    let older = numbered.len().saturating_sub(max);
    numbered.into_iter().skip(older).map(|(_, row)| read(row)).collect()
}

/// Spending of a tree, from its row.
pub(in crate::postgres) fn decode_spend(head: &PgRow) -> LoadedRow<BudgetSpend> {
    Ok(BudgetSpend {
        steps: count(head, "steps")?,
        calls: count(head, "calls")?,
        cost_micros: count(head, "cost_micros")?,
        reserved_micros: count(head, "reserved_micros")?,
        tokens: count(head, "tokens")?,
    })
}

/// Open calls of a tree, from its row.
pub(in crate::postgres) fn open_calls(head: &PgRow) -> LoadedRow<u32> {
    decode(head, "open_calls")
}

fn by_tool_of(row: &PgRow) -> LoadedRow<(ToolName, u64)> {
    Ok((decode(row, "tool")?, count(row, "calls")?))
}

fn seen_of(row: &PgRow) -> LoadedRow<(SessionId, Fingerprint, ResultDigest)> {
    Ok((decode(row, "session_id")?, decode(row, "fingerprint")?, decode(row, "digest")?))
}

fn decode_changed_resource(row: &PgRow, opener: &Opener) -> LoadedRow<ChangedResource> {
    let seq = count(row, "seq")?;
    let resource = row.try_get::<String, _>("resource")?;
    Ok(ChangedResource {
        resource: Resource::new(opener.text(sealed::RESOURCE, row.try_get("session_id")?, seq, resource)?),
        tool: decode(row, "tool")?,
        fingerprint: decode(row, "fingerprint")?,
        seq,
    })
}

fn kept_of(row: &PgRow, opener: &Opener) -> LoadedRow<KeptText> {
    let (seq, id) = (count(row, "seq")?, row.try_get("session_id")?);
    let arguments =
        opener.optional_text(sealed::ARGUMENTS, id, count(row, "permit_seq")?, row.try_get("arguments")?)?;
    let result = opener.optional_text(sealed::RESULT, id, seq, row.try_get("result")?)?;
    Ok((seq, decode(row, "session_id")?, decode(row, "tool")?, arguments, result))
}

fn session_totals(row: &PgRow) -> LoadedRow<(SessionId, Option<SessionId>, u32, RunTotals)> {
    let by_tool: Option<String> = row.try_get("by_tool")?;
    let by_tool: BTreeMap<String, u64> = by_tool
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|e| corrupt(&e.to_string()))?
        .unwrap_or_default();
    let run = RunTotals {
        started_at: at(row, "started_ms")?,
        idle_ms: count(row, "idle_ms")?,
        spent: BudgetSpend {
            steps: count(row, "steps")?,
            calls: count(row, "calls")?,
            cost_micros: count(row, "cost_micros")? + count(row, "outcome_cost")?,
            reserved_micros: count(row, "unsettled")?,
            tokens: count(row, "tokens")? + count(row, "outcome_tokens")?,
        },
        by_tool: by_tool
            .into_iter()
            .map(|(tool, n)| Ok((name(ToolName::parse, &tool)?, n)))
            .collect::<LoadedRow<_>>()?,
    };
    Ok((decode(row, "session_id")?, decode(row, "parent_id")?, decode(row, "depth")?, run))
}
