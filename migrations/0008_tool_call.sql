create view tool_call as
select
  c.tenant_id,
  c.root_id,
  c.session_id,
  c.call_id,
  c.run_id,
  c.agent_id,
  c.tool,
  c.arguments,
  (array['unknown', 'read', 'write', 'poll'])[c.effect + 1] as effect,
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
  p.lease_until,
  c.observed,
  c.policy_version,
  case
    when o.status is not null then (array['running', 'success', 'error', 'cancelled', 'unknown'])[o.status + 1]
    when p.lease_until > now() then 'running'
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
comment on view tool_call is 'For people: one row a call, with its last judgement and what came of it.';
comment on column tool_call.tenant_id is 'The tenant.';
comment on column tool_call.root_id is 'The root of its call tree.';
comment on column tool_call.session_id is 'The session that asked.';
comment on column tool_call.call_id is 'The call, as its caller names it.';
comment on column tool_call.run_id is 'The run of the session; null when runs are not named.';
comment on column tool_call.agent_id is 'The agent that asked.';
comment on column tool_call.tool is 'The tool.';
comment on column tool_call.arguments is 'The arguments in canonical JSON.';
comment on column tool_call.effect is 'What it does to the world: unknown, read, write, poll.';
comment on column tool_call.resource is 'What it touches; null is anything.';
comment on column tool_call.judged_at is 'When it was judged last.';
comment on column tool_call.rounds is 'How often it was judged.';
comment on column tool_call.decision is 'What held: ALLOW, ASK, WAIT, REUSE, DENY, STOP.';
comment on column tool_call.would is 'What the policy would have decided; differs in shadow mode only.';
comment on column tool_call.rule is 'The rule whose finding decided.';
comment on column tool_call.reason is 'The reason of that finding.';
comment on column tool_call.level is 'The highest level of a loop among the findings.';
comment on column tool_call.attempt is 'The last attempt of its execution; null when it was never permitted.';
comment on column tool_call.idempotency_key is 'The key sent along with the execution.';
comment on column tool_call.lease_until is 'When its outcome counts as unknown unless recorded; heartbeats extend it.';
comment on column tool_call.observed is 'It was only reported, never asked for.';
comment on column tool_call.policy_version is 'The policy that judged.';
comment on column tool_call.outcome is 'What came of it: running, success, error, cancelled, unknown; null when it was not permitted.';
comment on column tool_call.recorded_at is 'When that was recorded.';
comment on column tool_call.failure is 'What went wrong, as one of the failure kinds.';
comment on column tool_call.error_signature is 'The error with its variable parts masked.';
comment on column tool_call.error_message is 'The raw error.';
comment on column tool_call.progress is 'True when it brought something new.';
comment on column tool_call.retryable is 'Advice: is a retry worth it?';
comment on column tool_call.retry_after_ms is 'Advice: the wait, in milliseconds.';
comment on column tool_call.p_success is 'Advice: the chance that a retry succeeds, as predicted then.';
comment on column tool_call.duration_ms is 'How long it took, in milliseconds, by the caller''s watch.';
comment on column tool_call.cost_micros is 'Cost of call and model, in millionths of a US dollar.';
comment on column tool_call.is_complete is 'Does the answer hold everything there is? Null: nobody said.';
comment on column tool_call.total_matches is 'How many matches there are in all. Null: nobody said.';
comment on column tool_call.result is 'The whole answer, when it was given.';
