create or replace view tool_quality as
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
      bool_or(c.coerced is not null) as is_coerced,
      bool_or(coalesce(c.reason, '') = 'validation_error') as is_refused,
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
      ((sum(invalid) + count(*) filter (where is_refused))
        / nullif(sum(settled) + count(*) filter (where is_refused), 0))::float8 as validation_failure_rate,
      avg(is_coerced::integer)::float8 as coercion_rate,
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
    (4, 'validation_failure_rate', r.validation_failure_rate, 'its arguments are not constrained, or not said clearly'),
    (5, 'coercion_rate', r.coercion_rate, 'its arguments have other types than models expect'),
    (6, 'unknown_outcome_rate', r.unknown_outcome_rate,
      'it is a write without idempotency or without a way to look it up'),
    (7, 'missing_is_complete_rate', r.missing_is_complete_rate, 'its answer leaves open whether there is more')
  ) x (place, rate, value, problem)
  where x.value > 0
  order by x.rate = 'missing_is_complete_rate', x.value desc, x.place
  limit 1
) w on true;
comment on column tool_quality.validation_failure_rate is 'Share of the refusals for arguments and settled permits that were refused or failed for their arguments.';
comment on column tool_quality.coercion_rate is 'Share of the calls that had an argument of another type, which was read as the right one.';
