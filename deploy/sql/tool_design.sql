-- Which tools should be mended first, and how?
--
-- The tools of the last seven days with the calls that a better design would have saved, over all days.
-- How to read it: each problem is counted in calls (its rate times what the rate is a share of); the one with the most
-- calls is shown, with its share. What only the policy demands (budgets, conditions, justifications) is not held
-- against a tool. The list is in the order of what mending would bring; a tool that fails most of its calls stands there
-- with all its failures.
with counted as (
  select
    tenant_id,
    tool,
    sum(calls) as calls,
    sum(permitted) as permitted,
    sum(settled) as settled,
    sum(successes) as successes,
    sum(failed) as failed,
    sum(retries) as retries,
    sum(loops) as loops,
    sum(duplicates) as duplicates,
    sum(bad_arguments) as bad_arguments,
    sum(refused_arguments) as refused_arguments,
    sum(coercions) as coercions,
    sum(unknown_outcomes) as unknown_outcomes,
    sum(silent) as silent
  from callgate.tool_quality
  where day > (now() at time zone 'utc')::date - 7
  group by tenant_id, tool
)
select
  c.tenant_id,
  c.tool,
  c.calls::bigint as calls,
  (case when p.problem = 'missing_is_complete' then 0 else coalesce(p.wasted, 0) end)::bigint as wasted_calls,
  p.problem,
  round(p.wasted / nullif(p.share_of, 0), 3) as share,
  p.mend
from counted c
left join lateral (
  select x.*
  from (values
    (1, 'bad_arguments', c.bad_arguments, c.settled + c.refused_arguments,
      'use enums, formats and ranges in its schema, and name the fix in its errors'),
    (2, 'fails', case when 2 * c.failed > c.settled then c.failed end, c.settled,
      'mend it, or take it out of the tool list until it works'),
    (3, 'retries', c.retries, c.permitted, 'retry short failures inside the tool'),
    (4, 'loops', c.loops, c.calls, 'let its answer say what has changed, and what to call next'),
    (5, 'duplicates', c.duplicates, c.calls, 'return is_complete, and say when there is nothing more'),
    (6, 'coercions', c.coercions, c.calls, 'give each field the type that models write'),
    (7, 'unknown_outcomes', c.unknown_outcomes, c.settled, 'accept an idempotency key, and offer a look-up'),
    (8, 'missing_is_complete', c.silent, c.successes, 'say with every answer whether there is more')
  ) x (place, problem, wasted, share_of, mend)
  where x.wasted > 0
  order by x.problem = 'missing_is_complete', x.wasted desc, x.place
  limit 1
) p on true
order by wasted_calls desc, c.calls desc, c.tenant_id, c.tool;
