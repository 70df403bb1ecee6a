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
  coalesce(s.cache_write_tokens, 0)::bigint as cache_write_tokens
from call c
left join lateral (
  select x.seq, x.attempt, x.idempotency_key, x.lease_until from call x
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
    and (e.detail ->> 'approved')::boolean and e.detail ->> 'call_id' = c.call_id
  order by e.seq desc
  limit 1
) a on true
where not exists (
  select from call n
  where n.shard = c.shard and n.tenant_id = c.tenant_id and n.epoch = c.epoch and n.session_id = c.session_id
    and n.call_id = c.call_id
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
comment on column tool_call.effect is 'What it does to the world: unknown, read, write, poll, check.';
comment on column tool_call.resource is 'What it touches; null is anything.';
comment on column tool_call.judged_at is 'When it was judged last.';
comment on column tool_call.rounds is 'How often it was judged.';
comment on column tool_call.decision is 'What held: ALLOW, ASK, WAIT, REUSE, DENY, STOP.';
comment on column tool_call.would is 'What the policy would have decided; differs in shadow mode only.';
comment on column tool_call.rule is 'The rule whose finding decided.';
comment on column tool_call.reason is 'The reason of that finding.';
comment on column tool_call.level is 'The highest level among the findings, of a loop or a budget; each finding''s own is in callgate.findings.';
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
comment on column tool_call.message is 'What the deciding finding said to the model. Null: no rule had anything to say.';
comment on column tool_call.deciding_finding is 'The finding that decided, whole: rule, decision, reason, level, count, message, next_action, violations.';
comment on column tool_call.justification is 'Why the agent wanted it, in its words.';
comment on column tool_call.approved_by is 'Who approved it; null when nobody did.';
comment on column tool_call.approved_at is 'When.';
comment on column tool_call.earlier_attempts is 'Permits of the same call (tool and canonical arguments) in its session before this judgement.';
comment on column tool_call.first_judged_at is 'When it was judged first.';
comment on column tool_call.batch is 'The calls of one model turn share it: the seq of the first.';
comment on column tool_call.input_tokens is 'Tokens read by the model since its last call, and as reported with the outcome.';
comment on column tool_call.output_tokens is 'Tokens written by the model since its last call, and as reported with the outcome.';
comment on column tool_call.cache_read_tokens is 'Tokens read from a prompt cache since its last call, and as reported with the outcome.';
comment on column tool_call.cache_write_tokens is 'Tokens written to a prompt cache since its last call, and as reported with the outcome.';
