//! Call lists: of one call tree in order, or of the recently active trees.

use sqlx::PgConnection;

use super::{
    super::{Store, decode::LoadedRow, point_queries, sealed::Opener},
    call_lines::{self, CallKey},
    filter::{SearchedTree, TREES_MAX, Trees, bind_filter, condition, is_sealed, searchable},
    names::NameSearch,
};
use crate::error::StoreError;
use callgate_core::domain::{
    calls::{CallLine, CallPlace, CallQuery, SearchPage},
    ids::{SessionId, TenantId},
    shard::Shard,
};

/// Number of trees in the first statement.
const FEW: usize = 16;

impl Store {
    /// Summaries of the matching calls; none for an unknown session.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn calls(
        &self,
        tenant: TenantId,
        wanted: &CallQuery,
    ) -> Result<Option<SearchPage<CallLine, CallPlace>>, StoreError> {
        let opener = self.opener(tenant);
        let names = self.name_search(tenant, &wanted.filter).await?;
        self.readers.read_of(&[tenant], async |conn| calls(conn, &opener, wanted, &names).await).await
    }
}

async fn calls(
    conn: &mut PgConnection,
    opener: &Opener,
    wanted: &CallQuery,
    names: &NameSearch,
) -> LoadedRow<Option<SearchPage<CallLine, CallPlace>>> {
    let tenant = opener.tenant();
    let (mut trees, mut is_more) = match &wanted.session {
        Some(session) => {
            let Some(root) = point_queries::root(conn, tenant, session).await? else { return Ok(None) };
            (vec![SearchedTree::alone(Shard::of(tenant, &root), &root)], false)
        }
        None => {
            let trees = Trees {
                after: wanted.after.as_ref().map(|after| (after.last_us, after.root.clone())),
                since_ms: wanted.filter.since.map(|at| at.as_millis()),
                until_ms: wanted.filter.until.map(|at| at.as_millis()),
                times: names.times.clone(),
                ..Trees::default()
            };
            // Each has a call.
            trees.find(conn, tenant, if wanted.filter.is_all() { wanted.max + 1 } else { TREES_MAX }).await?
        }
    };
    let searchable = searchable(&trees, TREES_MAX);
    is_more |= searchable < trees.len();
    trees.truncate(searchable);
    let (mut keys, mut looked): (Vec<CallKey>, usize) = (Vec::new(), 0);
    while looked < trees.len() && keys.len() <= wanted.max {
        let some = &trees[looked..trees.len().min(looked.max(FEW) * 2)];
        let left = wanted.max + 1 - keys.len();
        keys.extend(keys_of(conn, tenant, some, (wanted, names), left).await?);
        looked += some.len();
    }
    let is_full = keys.len() > wanted.max;
    keys.truncate(wanted.max);
    let next = match (keys.last(), trees.last()) {
        (Some(key), _) if is_full => Some(key.place.clone()),
        (_, Some(tree)) if is_more => Some(CallPlace { last_us: tree.key, root: tree.root.clone(), seq: 0 }),
        _ => None,
    };
    Ok(Some(SearchPage {
        found: call_lines::read_calls(conn, opener, &keys).await?,
        since_us: next.as_ref().filter(|_| wanted.session.is_none()).map(|next| next.last_us),
        next,
        is_sealed: is_sealed(&wanted.filter, opener),
        is_name_prefix: names.is_prefix,
        trees_left: 0,
    }))
}

async fn keys_of(
    conn: &mut PgConnection,
    tenant: TenantId,
    trees: &[SearchedTree],
    (wanted, names): (&CallQuery, &NameSearch),
    most: usize,
) -> LoadedRow<Vec<CallKey>> {
    let (behind, order) = if wanted.oldest_first { (">", "asc") } else { ("<", "desc") };
    let sql = format!(
        "select k.shard, k.root_id, k.last_us, c.session_id, c.call_id, c.seq
         from unnest($15::int2[], $16::text[], $17::int8[]) with ordinality as k(shard, root_id, last_us, no)
         join call_tree t on t.shard = k.shard and t.tenant_id = $1 and t.root_id = k.root_id
         join session s on s.shard = t.shard and s.tenant_id = t.tenant_id and s.root_id = t.root_id
         cross join lateral (
           select c.session_id, c.call_id, c.seq from call c
           where c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
             and c.session_id = s.session_id and ($18::text is null or t.root_id <> $18 or c.seq {behind} $19)
             and {}
           order by c.seq {order} limit $21) c
         where $20::text is null or s.session_id = $20
         order by k.no, c.seq {order} limit $21",
        condition()
    );
    let shards: Vec<i16> = trees.iter().map(|tree| tree.shard).collect();
    let roots: Vec<&str> = trees.iter().map(|tree| tree.root.as_str()).collect();
    let heard: Vec<i64> = trees.iter().map(|tree| tree.key).collect();
    let query = bind_filter(sql, tenant, &wanted.filter, names).bind(shards).bind(roots).bind(heard);
    let after = wanted.after.as_ref();
    let query = query
        .bind(after.map(|after| after.root.as_str()))
        .bind(after.map(|after| i64::try_from(after.seq).unwrap_or(i64::MAX)))
        .bind(wanted.session.as_ref().filter(|_| wanted.alone).map(SessionId::as_str));
    let rows = query.bind(i64::try_from(most).unwrap_or(i64::MAX)).fetch_all(conn).await?;
    rows.iter().map(call_lines::key).collect()
}
