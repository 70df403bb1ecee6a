-- As 0206 has it, with who decided to repeat, whether the key was sent, and successes that were inferred or doubled.
create or replace view attempts as
select
  c.tenant_id,
  c.root_id,
  c.session_id,
  c.call_id,
  c.seq,
  c.agent_id,
  c.tool,
  c.arguments,
  c.attempt,
  c.occurrence,
  c.idempotency_key,
  c.at as permitted_at,
  c.observed,
  (array['retry', 'near', 'changed'])[c.retry_kind + 1] as follows_up,
  (array['timeout', 'rate_limited', 'unavailable', 'network', 'conflict', 'auth', 'permission', 'not_found',
    'invalid_argument', 'quota_exhausted', 'internal', 'other'])[c.retry_failure + 1] as after_failure,
  c.waited_ms,
  c.p_predicted,
  c.retryable_said,
  c.probe,
  case
    when o.status > 0 then (array['running', 'success', 'error', 'cancelled', 'unknown'])[o.status + 1]
    when greatest(c.lease_until, o.lease_until) > now() then 'running'
    else 'unknown'
  end as outcome,
  o.at as recorded_at,
  (array['timeout', 'rate_limited', 'unavailable', 'network', 'conflict', 'auth', 'permission', 'not_found',
    'invalid_argument', 'quota_exhausted', 'internal', 'other'])[o.failure + 1] as failure,
  o.error_message,
  o.retryable,
  o.retry_after_ms,
  o.retries_remaining,
  o.duration_ms,
  (coalesce(c.cost_micros, 0) + coalesce(s.cost_micros, 0))::bigint as cost_micros,
  (coalesce(c.input_tokens, 0) + coalesce(c.output_tokens, 0) + coalesce(c.cache_read_tokens, 0)
    + coalesce(c.cache_write_tokens, 0) + coalesce(s.tokens, 0))::bigint as tokens,
  o.effect_open,
  (array['by_client', 'by_model', 'by_person', 'never'])[o.repeat] as repeat,
  (array['client', 'model', 'person'])[c.decided_by + 1] as decided_by,
  o.key_sent,
  coalesce(o.inferred, false) as inferred,
  coalesce(o.double_effect, false) as double_effect
from call c
left join lateral (
  select x.* from outcome x
  where x.shard = c.shard and x.tenant_id = c.tenant_id and x.epoch = c.epoch and x.session_id = c.session_id
    and x.permit_seq = c.seq
  order by (x.status = 0), x.seq desc
  limit 1
) o on true
left join lateral (
  select sum(x.cost_micros) as cost_micros,
    sum(coalesce(x.input_tokens, 0) + coalesce(x.output_tokens, 0) + coalesce(x.cache_read_tokens, 0)
      + coalesce(x.cache_write_tokens, 0)) as tokens
  from outcome x
  where x.shard = c.shard and x.tenant_id = c.tenant_id and x.epoch = c.epoch and x.session_id = c.session_id
    and x.permit_seq = c.seq
) s on true
where c.attempt is not null;
comment on column attempts.decided_by is 'For a follow-up: who decided to make it: client (the program, under the same call_id), model (by another call), person (who approved it); null where it is none, or of an earlier build.';
comment on column attempts.key_sent is 'The execution received the idempotency key, as its caller reported; null for what an earlier build recorded.';
comment on column attempts.inferred is 'Its success was not reported: a later attempt was told that what this one would make exists already.';
comment on column attempts.double_effect is 'Another attempt of the same execution had succeeded before: it was done twice.';
