-- As 0045 has it, with another word for unknown outcomes: a tool may be no write.
create or replace view tool_quality as
with
  -- What came of a permit: its last report that is no heartbeat.
  settled as (
    select distinct on (shard, tenant_id, epoch, session_id, permit_seq) shard, tenant_id, epoch, session_id,
      permit_seq, status, failure, is_complete, error_message
    from outcome
    where status > 0
    order by shard, tenant_id, epoch, session_id, permit_seq, seq desc
  ),
  followed as (
    select distinct shard, tenant_id, epoch, session_id, retry_of from call where retry_of is not null
  ),
  -- What each judgement says of the tool. What the policy demands of its own (a condition, a justification) does not.
  judged as (
    select
      c.*,
      jsonb_path_exists(c.findings,
        '$[*] ? (@.level != null && @.rule != "budget" && @.rule != "growth" && @.rule != "unknown_tool")') as in_loop,
      c.reason = 'validation_error' and jsonb_path_exists(c.findings,
        '$[*] ? (@.rule == $rule).violations[*] ? (@.keyword != "condition" && @.keyword != "require_reason")',
        jsonb_build_object('rule', c.rule)) as is_refused
    from call c
  ),
  -- One row a call, whatever the number of its judgements. Names of tools that do not exist are in unknown_tools.
  asked as (
    select
      min(c.tool) as tool,
      (min(c.at) at time zone 'utc')::date as day,
      c.tenant_id,
      count(c.attempt) as permitted,
      count(*) filter (where c.retry_kind = 0) as retries,
      coalesce(bool_or(c.in_loop), false)::integer as in_loop,
      coalesce(bool_or(c.reason = 'duplicate_call_blocked'), false)::integer as is_duplicate,
      bool_or(c.coerced is not null)::integer as is_coerced,
      coalesce(bool_or(c.is_refused), false)::integer as is_refused,
      coalesce(bool_or(c.decision > 0 and c.rule = 'budget'), false)::integer as is_over_budget,
      count(s.status) as settled,
      count(*) filter (where s.status = 1) as successes,
      count(*) filter (where s.status = 1 and s.is_complete is null) as silent,
      count(*) filter (where s.status = 4) as unknown,
      count(*) filter (where s.failure = 8) as invalid,
      count(*) filter (where s.status = 2) as errors,
      count(s.failure) as failures,
      count(*) filter (where s.failure is not null and strpos(s.error_message, e'\n') > 0) as raw,
      count(*) filter (where s.failure is not null and f.retry_of is null) as censored
    from judged c
    left join settled s on s.shard = c.shard and s.tenant_id = c.tenant_id and s.epoch = c.epoch
      and s.session_id = c.session_id
      and s.permit_seq = c.seq
    left join followed f on f.shard = c.shard and f.tenant_id = c.tenant_id and f.epoch = c.epoch
      and f.session_id = c.session_id
      and f.retry_of = c.seq
    group by c.shard, c.tenant_id, c.epoch, c.session_id, c.call_id
    having not coalesce(bool_or(c.decision > 0 and c.rule = 'unknown_tool'), false)
  ),
  counted as (
    select
      tenant_id,
      tool,
      day,
      count(*) as calls,
      sum(permitted)::bigint as permitted,
      sum(settled)::bigint as settled,
      sum(successes)::bigint as successes,
      sum(errors)::bigint as failed,
      sum(retries)::bigint as retries,
      sum(in_loop)::bigint as loops,
      sum(is_duplicate)::bigint as duplicates,
      sum(is_refused)::bigint as refused_arguments,
      (sum(invalid) + sum(is_refused))::bigint as bad_arguments,
      sum(is_coerced)::bigint as coercions,
      sum(is_over_budget)::bigint as over_budget,
      sum(unknown)::bigint as unknown_outcomes,
      sum(silent)::bigint as silent,
      sum(failures)::bigint as failures,
      sum(raw)::bigint as raw,
      sum(censored)::bigint as censored
    from asked
    group by tenant_id, tool, day
  ),
  rated as (
    select
      *,
      retries::float8 / nullif(permitted, 0) as retry_rate,
      loops::float8 / calls as loop_rate,
      duplicates::float8 / calls as duplicate_rate,
      bad_arguments::float8 / nullif(settled + refused_arguments, 0) as validation_failure_rate,
      coercions::float8 / calls as coercion_rate,
      unknown_outcomes::float8 / nullif(settled, 0) as unknown_outcome_rate,
      silent::float8 / nullif(successes, 0) as missing_is_complete_rate,
      raw::float8 / nullif(failures, 0) as raw_error_rate,
      censored::float8 / nullif(failures, 0) as censored_rate,
      failed::float8 / nullif(settled, 0) as failure_rate
    from counted
  )
select
  r.tenant_id,
  r.tool,
  r.day,
  r.calls,
  r.permitted,
  r.retry_rate,
  r.loop_rate,
  r.duplicate_rate,
  r.validation_failure_rate,
  r.coercion_rate,
  r.unknown_outcome_rate,
  r.missing_is_complete_rate,
  r.raw_error_rate,
  r.censored_rate,
  w.rate as worst,
  w.problem as design_problem,
  r.failure_rate,
  r.refused_arguments::float8 / r.calls as validation_refusal_rate,
  r.over_budget::float8 / r.calls as budget_refusal_rate,
  r.settled,
  r.successes,
  r.failed,
  r.retries,
  r.loops,
  r.duplicates,
  r.refused_arguments,
  r.bad_arguments,
  r.coercions,
  r.over_budget,
  r.unknown_outcomes,
  r.silent
from rated r
left join lateral (
  select x.rate, x.problem
  from (values
    (1, 'retry_rate', r.retry_rate, 'it fails in ways that pass: retry inside the tool'),
    (2, 'loop_rate', r.loop_rate, 'its answer does not say what to do next, or that nothing has changed'),
    (3, 'duplicate_rate', r.duplicate_rate, 'its answer does not say that it is complete'),
    (4, 'validation_failure_rate', r.validation_failure_rate, 'its arguments are not constrained, or not said clearly'),
    (5, 'coercion_rate', r.coercion_rate, 'its arguments have other types than models expect'),
    (6, 'unknown_outcome_rate', r.unknown_outcome_rate,
      'nobody reports what came of it, or it breaks off without an answer'),
    -- Some failures are part of the work; a tool that mostly fails is broken.
    (7, 'failure_rate', case when 2 * r.failed > r.settled then r.failure_rate end,
      'it fails more often than it works'),
    (8, 'missing_is_complete_rate', r.missing_is_complete_rate, 'its answer leaves open whether there is more')
  ) x (place, rate, value, problem)
  where x.value > 0
  order by x.rate = 'missing_is_complete_rate', x.value desc, x.place
  limit 1
) w on true;
