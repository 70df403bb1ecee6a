-- As 0207 has it, with whether the key was sent, and successes that were inferred or doubled.
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
  o.result,
  d.finding ->> 'message' as message,
  d.finding as deciding_finding,
  c.justification,
  a.by as approved_by,
  a.at as approved_at,
  -- Asked for only where it is read, so that other questions do not pay for it.
  (
    select count(*) from call e
    where e.shard = c.shard and e.tenant_id = c.tenant_id and e.epoch = c.epoch and e.session_id = c.session_id
      and e.seq < c.seq
      and e.fingerprint = c.fingerprint and e.attempt is not null
  ) as earlier_attempts,
  s.first_judged_at,
  c.batch,
  coalesce(s.input_tokens, 0)::bigint as input_tokens,
  coalesce(s.output_tokens, 0)::bigint as output_tokens,
  coalesce(s.cache_read_tokens, 0)::bigint as cache_read_tokens,
  coalesce(s.cache_write_tokens, 0)::bigint as cache_write_tokens,
  o.whole_bytes is not null as result_truncated,
  o.whole_bytes as result_whole_bytes,
  encode(o.whole_sha256, 'hex') as result_whole_sha256,
  encode(c.trace_id, 'hex') as trace_id,
  encode(o.trace_id, 'hex') as report_trace_id,
  c.host,
  o.effect_open,
  (array['by_client', 'by_model', 'by_person', 'never'])[o.repeat] as repeat,
  o.key_sent,
  coalesce(o.inferred, false) as inferred,
  coalesce(o.double_effect, false) as double_effect
from call c
left join lateral (
  select x.seq, x.at, x.policy_version, x.attempt, x.idempotency_key, x.lease_until from call x
  where x.shard = c.shard and x.tenant_id = c.tenant_id and x.epoch = c.epoch and x.session_id = c.session_id
    and x.call_id = c.call_id
    and x.attempt is not null
  order by x.round desc
  limit 1
) p on true
left join lateral (
  select x.* from outcome x
  where x.shard = c.shard and x.tenant_id = c.tenant_id and x.epoch = c.epoch and x.session_id = c.session_id
    and x.permit_seq = p.seq
  order by (x.status = 0), x.seq desc
  limit 1
) o on true
left join lateral (
  select
    min(x.at) as first_judged_at,
    sum(coalesce(x.cost_micros, 0) + coalesce(y.cost_micros, 0)) as cost_micros,
    sum(coalesce(x.input_tokens, 0) + coalesce(y.input_tokens, 0)) as input_tokens,
    sum(coalesce(x.output_tokens, 0) + coalesce(y.output_tokens, 0)) as output_tokens,
    sum(coalesce(x.cache_read_tokens, 0) + coalesce(y.cache_read_tokens, 0)) as cache_read_tokens,
    sum(coalesce(x.cache_write_tokens, 0) + coalesce(y.cache_write_tokens, 0)) as cache_write_tokens
  from call x
  left join lateral (
    select sum(z.cost_micros) as cost_micros, sum(z.input_tokens) as input_tokens,
      sum(z.output_tokens) as output_tokens, sum(z.cache_read_tokens) as cache_read_tokens,
      sum(z.cache_write_tokens) as cache_write_tokens
    from outcome z
    where z.shard = x.shard and z.tenant_id = x.tenant_id and z.epoch = x.epoch and z.session_id = x.session_id
      and z.permit_seq = x.seq
  ) y on true
  where x.shard = c.shard and x.tenant_id = c.tenant_id and x.epoch = c.epoch and x.session_id = c.session_id
    and x.call_id = c.call_id
) s on true
left join lateral (
  select x.finding from jsonb_array_elements(c.findings) with ordinality x (finding, place)
  where x.finding ->> 'rule' = c.rule and x.finding ->> 'reason' = c.reason
  order by x.place
  limit 1
) d on true
left join lateral (
  select e.actor as by, e.at from session_event e
  where (c.round > 1 or c.attempt is not null) and e.shard = c.shard and e.tenant_id = c.tenant_id
    and e.root_id = c.root_id
    and e.epoch = c.epoch and e.kind = 'answered' and e.session_id = c.session_id
    and (
      (e.detail ->> 'approved')::boolean and e.detail ->> 'call_id' = c.call_id
      -- Of these arguments, before their time, and not used by a call before.
      or e.detail #>> '{edit,digest}' = encode(c.args_digest, 'hex') and e.seq < p.seq
        and p.at < to_timestamp((e.detail #>> '{edit,until_ms}')::bigint / 1000.0)
        and e.detail #>> '{edit,policy}' = p.policy_version
        and not exists (
          select from call n
          where n.shard = c.shard and n.tenant_id = c.tenant_id and n.epoch = c.epoch and n.session_id = c.session_id
            and n.seq > e.seq and n.seq < p.seq
            and n.args_digest = c.args_digest and n.attempt is not null
        )
    )
  order by e.seq desc
  limit 1
) a on true
where not exists (
  select from call n
  where n.shard = c.shard and n.tenant_id = c.tenant_id and n.epoch = c.epoch and n.session_id = c.session_id
    and n.call_id = c.call_id
    and n.round > c.round
);
comment on column tool_call.key_sent is 'The last execution received the idempotency key, as its caller reported; null for what an earlier build recorded.';
comment on column tool_call.inferred is 'The success was not reported: a later attempt was told that what this one would make exists already.';
comment on column tool_call.double_effect is 'Another attempt of the same execution had succeeded before: it was done twice.';
