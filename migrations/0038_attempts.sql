create view attempts as
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
    + coalesce(c.cache_write_tokens, 0) + coalesce(s.tokens, 0))::bigint as tokens
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
comment on view attempts is 'Every permit, and what came of it: a call that is tried again has a row for each try.';
comment on column attempts.tenant_id is 'The tenant.';
comment on column attempts.root_id is 'The root of the call tree.';
comment on column attempts.session_id is 'The session that asked.';
comment on column attempts.call_id is 'The call, as its caller names it.';
comment on column attempts.seq is 'The permit''s place among the events of its call tree.';
comment on column attempts.agent_id is 'The agent that asked.';
comment on column attempts.tool is 'The tool.';
comment on column attempts.arguments is 'The arguments in canonical JSON.';
comment on column attempts.attempt is 'The n-th try of its execution, from 1.';
comment on column attempts.occurrence is 'The intended execution that it is a try of.';
comment on column attempts.idempotency_key is 'The key sent along with the execution; all its tries share it.';
comment on column attempts.permitted_at is 'When it was permitted.';
comment on column attempts.observed is 'It was only reported, never asked for.';
comment on column attempts.follows_up is 'How it follows up on a failure: retry (same arguments), near, changed (corrections). Null: on none.';
comment on column attempts.after_failure is 'What had gone wrong then.';
comment on column attempts.waited_ms is 'From the failure''s report to this permit, in milliseconds.';
comment on column attempts.p_predicted is 'The chance that was told with the failure, 0 to 1.';
comment on column attempts.retryable_said is 'Whether a retry was advised with the failure.';
comment on column attempts.probe is 'It was advised against the estimate, to learn.';
comment on column attempts.outcome is 'What came of it: running, success, error, cancelled, unknown.';
comment on column attempts.recorded_at is 'When that was recorded.';
comment on column attempts.failure is 'What went wrong, as one of the failure kinds.';
comment on column attempts.error_message is 'The raw error.';
comment on column attempts.retryable is 'Advice: is a retry worth it?';
comment on column attempts.retry_after_ms is 'Advice: the wait, in milliseconds.';
comment on column attempts.retries_remaining is 'Advice: how many more tries may follow.';
comment on column attempts.duration_ms is 'How long it took, in milliseconds, by the caller''s watch.';
comment on column attempts.cost_micros is 'Cost of call and model as reported with this permit and its outcome, in millionths of a US dollar.';
comment on column attempts.tokens is 'Tokens of the model, of every kind, as reported with this permit and its outcome.';
