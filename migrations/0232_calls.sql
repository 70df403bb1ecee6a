-- Plain joins by whole keys on one level, so that a query over all calls reads each table once and in parallel: a nested
-- query would have a condition of row-level security of its own, which no parallel plan may contain. The sides e and n
-- are few rows, by partial indexes.
create view calls as
select
  c.tenant_id,
  t.name as tenant,
  c.root_id,
  c.session_id,
  c.call_id,
  c.run_id,
  c.round,
  p.seq is null as is_last,
  c.at as judged_at,
  c.agent_id,
  c.user_id,
  c.host,
  coalesce(c.model, o.model) as model,
  c.tool,
  (array['unknown', 'read', 'write', 'poll', 'check'])[c.effect + 1] as effect,
  (array['ALLOW', 'ASK', 'WAIT', 'REUSE', 'DENY', 'STOP'])[c.decision + 1] as decision,
  (array['ALLOW', 'ASK', 'WAIT', 'REUSE', 'DENY', 'STOP'])[c.would + 1] as would,
  c.rule,
  c.reason,
  c.observed,
  c.policy_version,
  c.approval_id,
  c.approval_group,
  c.attempt,
  (array['success', 'error', 'cancelled', 'unknown'])[o.status] as outcome,
  (array['timeout', 'rate_limited', 'unavailable', 'network', 'conflict', 'auth', 'permission', 'not_found',
    'invalid_argument', 'quota_exhausted', 'internal', 'other'])[o.failure + 1] as failure,
  case
    when c.decision > 0 and c.rule in ('tool_circuit_breaker', 'cooldown') then 'tool'
    when c.decision > 0 and c.rule in ('schema', 'unknown_tool', 'requires', 'same_call', 'same_success', 'repeat', 'poll',
      'cycle', 'same_error', 'same_result', 'churn', 'refused', 'after_compaction', 'side_effects', 'growth',
      'global_circuit_breaker', 'breaker') then 'model'
    when c.decision > 0 then 'policy'
    when o.status not in (2, 4) or c.effect = 4 then null
    when o.failure in (7, 8) then 'model'
    when o.status is not null then 'tool'
  end as cause,
  o.at as recorded_at,
  o.duration_ms,
  (extract(epoch from o.at - c.at) * 1000)::bigint as total_ms,
  c.waited_ms as retry_wait_ms,
  coalesce(c.cost_micros, 0) + coalesce(o.cost_micros, 0) as cost_micros,
  coalesce(c.input_tokens, 0) + coalesce(o.input_tokens, 0) as input_tokens,
  coalesce(c.output_tokens, 0) + coalesce(o.output_tokens, 0) as output_tokens,
  coalesce(c.cache_read_tokens, 0) + coalesce(o.cache_read_tokens, 0) as cache_read_tokens,
  coalesce(c.cache_write_tokens, 0) + coalesce(o.cache_write_tokens, 0) as cache_write_tokens,
  (c.decision >= 3 and not c.observed and (c.round = 1 or not exists (
    select from call e
    where e.shard = c.shard and e.tenant_id = c.tenant_id and e.epoch = c.epoch and e.session_id = c.session_id
      and e.call_id = c.call_id and e.round < c.round and e.decision >= 3)))::int as saved_calls,
  case when c.decision >= 3 and not c.observed and (c.round = 1 or not exists (
    select from call e
    where e.shard = c.shard and e.tenant_id = c.tenant_id and e.epoch = c.epoch and e.session_id = c.session_id
      and e.call_id = c.call_id and e.round < c.round and e.decision >= 3))
    then coalesce(c.reserved_micros, 0) else 0 end as saved_micros
from call c
left join outcome o on o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
  and o.session_id = c.session_id and o.permit_seq = c.seq and o.status > 0
-- Outcomes that were replaced: a success that was reported holds, any other may be followed by a later one.
left join (
  outcome e
  join outcome x on x.shard = e.shard and x.tenant_id = e.tenant_id and x.epoch = e.epoch
    and x.session_id = e.session_id and x.permit_seq = e.permit_seq and x.seq > e.seq and x.status > 0
    and (e.status <> 1 or e.inferred)
) on e.shard = o.shard and e.tenant_id = o.tenant_id and e.epoch = o.epoch and e.session_id = o.session_id
  and e.permit_seq = o.permit_seq and e.seq = o.seq
left join (
  call n
  join call p on p.shard = n.shard and p.tenant_id = n.tenant_id and p.epoch = n.epoch and p.session_id = n.session_id
    and p.call_id = n.call_id and p.round = n.round - 1 and n.round > 1
) on p.shard = c.shard and p.tenant_id = c.tenant_id and p.epoch = c.epoch and p.session_id = c.session_id
  and p.seq = c.seq
left join tenant t on t.tenant_id = c.tenant_id
where e.seq is null;
comment on view calls is 'All judgments in plain columns, for queries over many calls: each with the outcome of its permit. A call that is judged again has another row; round = 1 counts each call once, is_last keeps its last judgment. No texts, and so nothing encrypted; tool_call has those of single calls.';
comment on column calls.tenant_id is 'The tenant.';
comment on column calls.tenant is 'The tenant''s name.';
comment on column calls.root_id is 'The root of its call tree.';
comment on column calls.session_id is 'The session.';
comment on column calls.call_id is 'The call, as its caller names it; unique in its session.';
comment on column calls.run_id is 'The run of the session; null when runs are not named.';
comment on column calls.round is 'The n-th judgment of this call, from 1.';
comment on column calls.is_last is 'The call was not judged again.';
comment on column calls.judged_at is 'Time of the judgment.';
comment on column calls.agent_id is 'The agent; null when it is not named.';
comment on column calls.user_id is 'The user for whom the agent works; null when it is not named.';
comment on column calls.host is 'The program in which the agent runs; null when it is not named.';
comment on column calls.model is 'The model that used the tokens; null when it is not named.';
comment on column calls.tool is 'The tool.';
comment on column calls.effect is 'The effect of the call: unknown, read, write, poll, check.';
comment on column calls.decision is 'The decision that held: ALLOW, ASK, WAIT, REUSE, DENY, STOP.';
comment on column calls.would is 'The decision of the policy; differs from decision in shadow mode only.';
comment on column calls.rule is 'The rule whose finding decided; null without a finding.';
comment on column calls.reason is 'The reason of that finding.';
comment on column calls.observed is 'The call was only reported, without a judgment before it ran.';
comment on column calls.policy_version is 'The policy that judged, by hash.';
comment on column calls.approval_id is 'The approval request; null without one.';
comment on column calls.approval_group is 'The group that may answer it first; null without a request, and where every approver may.';
comment on column calls.attempt is 'The n-th attempt of its occurrence; null without a permit.';
comment on column calls.outcome is 'The outcome: success, error, cancelled, unknown. Null without a permit, and before a report.';
comment on column calls.failure is 'The failure kind of an error or unknown outcome: timeout, rate_limited, unavailable, network, conflict, auth, permission, not_found, invalid_argument, quota_exhausted, internal, other.';
comment on column calls.cause is 'The cause of a refusal or failure: model (bad arguments, loops, repetitions), tool (it failed, or its circuit breaker is open), policy (tiers, budgets, phases, halts). Null for a success, and for a check that failed.';
comment on column calls.recorded_at is 'Time of the outcome.';
comment on column calls.duration_ms is 'Duration of the execution, in milliseconds, by the caller''s clock; null when unreported.';
comment on column calls.total_ms is 'From the judgment to the outcome, in milliseconds.';
comment on column calls.retry_wait_ms is 'Of a follow-up on a failure: from the failure''s report to this permit, in milliseconds.';
comment on column calls.cost_micros is 'Cost of the call and of the model, sent with this judgment and its outcome, in millionths of a US dollar. Usage sent with heartbeats, and with outcomes that were replaced, is in session_costs and model_costs alone.';
comment on column calls.input_tokens is 'Tokens read by the model, sent with this judgment and its outcome.';
comment on column calls.output_tokens is 'Tokens written by the model, likewise.';
comment on column calls.cache_read_tokens is 'Tokens read from a prompt cache, likewise.';
comment on column calls.cache_write_tokens is 'Tokens written to a prompt cache, likewise.';
comment on column calls.saved_calls is '1 for the first refusal of a call by REUSE, DENY or STOP, else 0: the sum is the number of executions saved.';
comment on column calls.saved_micros is 'With saved_calls, the expected cost of the execution, by the policy or the caller, in millionths of a US dollar. 0 where neither states one, and for refusals by earlier builds.';
do $$
begin
  if exists (select from pg_roles where rolname = 'callgate_analyst') then
    grant select on calls to callgate_analyst;
  end if;
end
$$;
