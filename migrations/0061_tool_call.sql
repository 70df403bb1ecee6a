create or replace view tool_call as
select
  c.tenant_id,
  c.root_id,
  c.session_id,
  c.call_id,
  c.run_id,
  c.agent_id,
  c.tool,
  c.arguments,
  (array['unknown', 'read', 'write', 'poll', 'check'])[c.effect + 1] as effect,
  c.resource,
  c.at as judged_at,
  c.round as rounds,
  (array['ALLOW', 'ASK', 'WAIT', 'REUSE', 'DENY', 'STOP'])[c.decision + 1] as decision,
  (array['ALLOW', 'ASK', 'WAIT', 'REUSE', 'DENY', 'STOP'])[c.would + 1] as would,
  c.rule,
  c.reason,
  (array['warning', 'critical', 'break'])[c.level] as level,
  p.attempt,
  p.idempotency_key,
  greatest(p.lease_until, o.lease_until) as lease_until,
  c.observed,
  c.policy_version,
  case
    when o.status > 0 then (array['running', 'success', 'error', 'cancelled', 'unknown'])[o.status + 1]
    when greatest(p.lease_until, o.lease_until) > now() then 'running'
    when p.attempt is not null then 'unknown'
  end as outcome,
  o.at as recorded_at,
  (array['timeout', 'rate_limited', 'unavailable', 'network', 'conflict', 'auth', 'permission', 'not_found',
    'invalid_argument', 'quota_exhausted', 'internal', 'other'])[o.failure + 1] as failure,
  o.error_signature,
  o.error_message,
  o.progress,
  o.retryable,
  o.retry_after_ms,
  o.p_success,
  o.duration_ms,
  coalesce(s.cost_micros, 0)::bigint as cost_micros,
  o.is_complete,
  o.total_matches,
  o.result
from call c
left join lateral (
  select x.seq, x.attempt, x.idempotency_key, x.lease_until from call x
  where x.tenant_id = c.tenant_id and x.epoch = c.epoch and x.session_id = c.session_id and x.call_id = c.call_id
    and x.attempt is not null
  order by x.round desc
  limit 1
) p on true
left join lateral (
  select x.* from outcome x
  where x.tenant_id = c.tenant_id and x.epoch = c.epoch and x.session_id = c.session_id and x.permit_seq = p.seq
  order by (x.status = 0), x.seq desc
  limit 1
) o on true
left join lateral (
  select sum(coalesce(x.cost_micros, 0) + coalesce(y.cost_micros, 0)) as cost_micros
  from call x
  left join lateral (
    select sum(z.cost_micros) as cost_micros from outcome z
    where z.tenant_id = x.tenant_id and z.epoch = x.epoch and z.session_id = x.session_id and z.permit_seq = x.seq
  ) y on true
  where x.tenant_id = c.tenant_id and x.epoch = c.epoch and x.session_id = c.session_id and x.call_id = c.call_id
) s on true
where not exists (
  select from call n
  where n.tenant_id = c.tenant_id and n.epoch = c.epoch and n.session_id = c.session_id and n.call_id = c.call_id
    and n.round > c.round
);
comment on column tool_call.effect is 'What it does to the world: unknown, read, write, poll, check.';
