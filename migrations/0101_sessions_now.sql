create or replace view sessions_now as
select
  s.tenant_id,
  s.root_id,
  s.session_id,
  s.parent_id,
  s.depth,
  l.agent_id,
  case
    when h.kind is not null then 'halted'
    when n.pending > 0 then 'waiting for a person'
    when n.running > 0 then 'calling'
    when l.decision = 5 then 'stopped'
    else 'between calls'
  end as state,
  l.tool as last_tool,
  (array['ALLOW', 'ASK', 'WAIT', 'REUSE', 'DENY', 'STOP'])[l.decision + 1] as last_decision,
  l.reason as last_reason,
  l.at as last_judged_at,
  coalesce(n.calls, 0) as calls,
  coalesce(n.refused, 0) as refused,
  coalesce(n.running, 0) as running,
  coalesce(n.pending, 0) as pending_approvals,
  t.cost_micros as tree_cost_micros,
  t.tokens as tree_tokens,
  s.created_at as started_at
from call_tree t
join session s on s.tenant_id = t.tenant_id and s.root_id = t.root_id
left join lateral (
  select c.agent_id, c.tool, c.decision, c.reason, c.at from call c
  where c.tenant_id = s.tenant_id and c.epoch = t.epoch and c.session_id = s.session_id
  order by c.seq desc
  limit 1
) l on true
left join lateral (
  select
    count(*) filter (where c.round = 1) as calls,
    count(*) filter (where c.round = 1 and c.decision > 0) as refused,
    count(*) filter (where c.attempt is not null and not exists (
      select from outcome o
      where o.tenant_id = c.tenant_id and o.epoch = c.epoch and o.session_id = c.session_id and o.permit_seq = c.seq
        and o.status > 0
    )) as running,
    count(distinct c.approval_id) filter (where c.approval_expires_at > now() and not exists (
      select from session_event e
      where e.tenant_id = c.tenant_id and e.root_id = c.root_id and e.epoch = c.epoch
        and e.kind in ('answered', 'withdrawn') and e.detail ->> 'approval_id' = c.approval_id
    )) as pending
  from call c
  where c.tenant_id = s.tenant_id and c.epoch = t.epoch and c.session_id = s.session_id
) n on true
left join lateral (
  select h.kind from halt h
  where h.tenant_id = s.tenant_id and h.resumed_at is null and (h.kind = 'tenant'
    or h.kind = 'session' and h.name in (s.session_id, s.root_id) or h.kind = 'agent' and h.name = l.agent_id)
  limit 1
) h on true
where t.version > 0 and (t.last_at > now() - interval '1 hour' or t.open_calls > 0);
