create view tool_quality as
with
  -- What came of a permit: its last report that is no heartbeat.
  settled as (
    select distinct on (tenant_id, epoch, session_id, permit_seq) tenant_id, epoch, session_id, permit_seq, status,
      failure, is_complete, error_message
    from outcome
    where status > 0
    order by tenant_id, epoch, session_id, permit_seq, seq desc
  ),
  followed as (
    select distinct tenant_id, epoch, session_id, retry_of from call where retry_of is not null
  ),
  -- One row a call, whatever the number of its judgements.
  asked as (
    select
      min(c.tool) as tool,
      (min(c.at) at time zone 'utc')::date as day,
      c.tenant_id,
      count(c.attempt) as permitted,
      count(*) filter (where c.retry_kind = 0) as retries,
      bool_or(c.level is not null) as in_loop,
      bool_or(c.reason = 'duplicate_call_blocked') as is_duplicate,
      count(s.status) as settled,
      count(*) filter (where s.status = 1) as successes,
      count(*) filter (where s.status = 1 and s.is_complete is null) as silent,
      count(*) filter (where s.status = 4) as unknown,
      count(*) filter (where s.failure = 8) as invalid,
      count(s.failure) as failures,
      count(*) filter (where s.failure is not null and strpos(s.error_message, e'\n') > 0) as raw,
      count(*) filter (where s.failure is not null and f.retry_of is null) as censored
    from call c
    left join settled s on s.tenant_id = c.tenant_id and s.epoch = c.epoch and s.session_id = c.session_id
      and s.permit_seq = c.seq
    left join followed f on f.tenant_id = c.tenant_id and f.epoch = c.epoch and f.session_id = c.session_id
      and f.retry_of = c.seq
    group by c.tenant_id, c.epoch, c.session_id, c.call_id
  ),
  rated as (
    select
      tenant_id,
      tool,
      day,
      count(*) as calls,
      sum(permitted)::bigint as permitted,
      (sum(retries) / nullif(sum(permitted), 0))::float8 as retry_rate,
      avg(in_loop::integer)::float8 as loop_rate,
      avg(coalesce(is_duplicate, false)::integer)::float8 as duplicate_rate,
      (sum(invalid) / nullif(sum(settled), 0))::float8 as validation_failure_rate,
      null::float8 as coercion_rate,
      (sum(unknown) / nullif(sum(settled), 0))::float8 as unknown_outcome_rate,
      (sum(silent) / nullif(sum(successes), 0))::float8 as missing_is_complete_rate,
      (sum(raw) / nullif(sum(failures), 0))::float8 as raw_error_rate,
      (sum(censored) / nullif(sum(failures), 0))::float8 as censored_rate
    from asked
    group by tenant_id, tool, day
  )
select r.*, w.rate as worst, w.problem as design_problem
from rated r
left join lateral (
  select x.rate, x.problem
  from (values
    (1, 'retry_rate', r.retry_rate, 'it fails in ways that pass: retry inside the tool'),
    (2, 'loop_rate', r.loop_rate, 'its answer does not say what to do next, or that nothing has changed'),
    (3, 'duplicate_rate', r.duplicate_rate, 'its answer does not say that it is complete'),
    (4, 'validation_failure_rate', r.validation_failure_rate, 'its arguments are not constrained'),
    (5, 'unknown_outcome_rate', r.unknown_outcome_rate,
      'it is a write without idempotency or without a way to look it up'),
    (6, 'missing_is_complete_rate', r.missing_is_complete_rate, 'its answer leaves open whether there is more')
  ) x (place, rate, value, problem)
  where x.value > 0
  order by x.rate = 'missing_is_complete_rate', x.value desc, x.place
  limit 1
) w on true;
comment on view tool_quality is 'How well a tool suits agents: one row a tenant, tool and UTC day. A call belongs to the day on which it was first judged.';
comment on column tool_quality.tenant_id is 'The tenant.';
comment on column tool_quality.tool is 'The tool.';
comment on column tool_quality.day is 'The UTC day.';
comment on column tool_quality.calls is 'Calls judged or reported, each counted once.';
comment on column tool_quality.permitted is 'Permits given to them: a call that is asked for again may have several.';
comment on column tool_quality.retry_rate is 'Share of the permits that were retries of a failure with the same arguments.';
comment on column tool_quality.loop_rate is 'Share of the calls that a loop detector warned of or stopped.';
comment on column tool_quality.duplicate_rate is 'Share of the calls that were answered with an earlier result instead of being run, or would have been but for shadow mode.';
comment on column tool_quality.validation_failure_rate is 'Share of the settled permits that failed for their arguments (invalid_argument).';
comment on column tool_quality.coercion_rate is 'Share of the calls whose arguments were repaired. Null: nothing repairs arguments yet.';
comment on column tool_quality.unknown_outcome_rate is 'Share of the settled permits of which nobody knows whether they took effect.';
comment on column tool_quality.missing_is_complete_rate is 'Share of the successes whose answer did not say whether it is complete.';
comment on column tool_quality.raw_error_rate is 'Share of the failures whose error has more than one line: a stack trace more often than a message.';
comment on column tool_quality.censored_rate is 'Share of the failures that no call followed up on: nothing is learned from them. Failures of the last ten minutes may still be.';
comment on column tool_quality.worst is 'The name of the highest rate among those that point to a problem of design; missing_is_complete_rate counts only where all others are 0. Null: all are.';
comment on column tool_quality.design_problem is 'What that rate says of the tool.';
