create view wasted_retries as
select
  a.tenant_id,
  a.tool,
  a.after_failure as failure,
  (a.permitted_at at time zone 'utc')::date as day,
  count(*) as retries,
  count(*) filter (where a.outcome in ('error', 'unknown')) as wasted,
  count(*) filter (where a.outcome in ('error', 'unknown') and not coalesce(a.retryable_said, true)) as against_advice,
  coalesce(sum(a.cost_micros) filter (where a.outcome in ('error', 'unknown')), 0)::bigint as cost_micros,
  coalesce(sum(a.tokens) filter (where a.outcome in ('error', 'unknown')), 0)::bigint as tokens,
  coalesce(sum(a.waited_ms + coalesce(a.duration_ms, 0)) filter (where a.outcome in ('error', 'unknown')), 0)::bigint
    as lost_ms
from attempts a
where a.follows_up = 'retry' and a.outcome <> 'running'
group by 1, 2, 3, 4;
comment on view wasted_retries is 'Retries with the same arguments that failed again, and what they cost: one row a tool, kind of failure and UTC day.';
comment on column wasted_retries.tenant_id is 'The tenant.';
comment on column wasted_retries.tool is 'The tool.';
comment on column wasted_retries.failure is 'The failure that was retried, as one of the failure kinds.';
comment on column wasted_retries.day is 'The UTC day of the retry.';
comment on column wasted_retries.retries is 'Retries that have come to an end.';
comment on column wasted_retries.wasted is 'Those that failed again, or of which nobody knows what came.';
comment on column wasted_retries.against_advice is 'Of the wasted ones: those made although the advice was not to retry.';
comment on column wasted_retries.cost_micros is 'What the wasted ones cost, call and model, in millionths of a US dollar.';
comment on column wasted_retries.tokens is 'Tokens of the model that the wasted ones took.';
comment on column wasted_retries.lost_ms is 'Time that the wasted ones took, waiting before them included, in milliseconds.';
