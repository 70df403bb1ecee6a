create view sessions_now as
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
join session s on s.shard = t.shard and s.tenant_id = t.tenant_id and s.root_id = t.root_id
left join lateral (
  select c.agent_id, c.tool, c.decision, c.reason, c.at from call c
  where c.shard = s.shard and c.tenant_id = s.tenant_id and c.epoch = t.epoch and c.session_id = s.session_id
  order by c.seq desc
  limit 1
) l on true
left join lateral (
  select
    count(*) filter (where c.round = 1) as calls,
    count(*) filter (where c.round = 1 and c.decision > 0) as refused,
    count(*) filter (where c.attempt is not null and not exists (
      select from outcome o
      where o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch and o.session_id = c.session_id
        and o.permit_seq = c.seq
        and o.status > 0
    )) as running,
    count(distinct c.approval_id) filter (where c.approval_expires_at > now() and not exists (
      select from session_event e
      where e.shard = c.shard and e.tenant_id = c.tenant_id and e.root_id = c.root_id and e.epoch = c.epoch
        and e.kind in ('answered', 'withdrawn') and e.detail ->> 'approval_id' = c.approval_id
    )) as pending
  from call c
  where c.shard = s.shard and c.tenant_id = s.tenant_id and c.epoch = t.epoch and c.session_id = s.session_id
) n on true
left join lateral (
  select h.kind from halt h
  where h.tenant_id = s.tenant_id and h.resumed_at is null and (h.kind = 'tenant'
    or h.kind = 'session' and h.name in (s.session_id, s.root_id) or h.kind = 'agent' and h.name = l.agent_id)
  limit 1
) h on true
where t.last_at > now() - interval '1 hour' or t.open_calls > 0;
comment on view sessions_now is 'What is going on: the sessions of every call tree with an event in the last hour, or with a call that is still open.';
comment on column sessions_now.tenant_id is 'The tenant.';
comment on column sessions_now.root_id is 'The root of the call tree.';
comment on column sessions_now.session_id is 'The session.';
comment on column sessions_now.parent_id is 'The session that started it; null for a root.';
comment on column sessions_now.depth is 'How deep it is nested; 0 for a root.';
comment on column sessions_now.agent_id is 'The agent of its last call.';
comment on column sessions_now.state is 'halted, waiting for a person, calling (a permitted call has no outcome yet), stopped (its last answer was STOP), or between calls.';
comment on column sessions_now.last_tool is 'The tool of its last call.';
comment on column sessions_now.last_decision is 'What was decided of it.';
comment on column sessions_now.last_reason is 'The reason of that.';
comment on column sessions_now.last_judged_at is 'When.';
comment on column sessions_now.calls is 'Calls judged or reported, each counted once.';
comment on column sessions_now.refused is 'Those that were refused when they were judged first.';
comment on column sessions_now.running is 'Permits without an outcome.';
comment on column sessions_now.pending_approvals is 'Questions to people that are open.';
comment on column sessions_now.tree_cost_micros is 'What its call tree has cost, in millionths of a US dollar.';
comment on column sessions_now.tree_tokens is 'Tokens of the model that its call tree has used.';
comment on column sessions_now.started_at is 'When it was first heard of.';
