-- Which tools should be mended first, and how?
--
-- The tools of the last seven days with the share of their calls that a better design would have saved.
-- How to read it: design_problem names what the worst rate of the tool's busiest day points to; wasted_calls is about how
-- many calls that rate has cost over the days. The list is in the order of what mending would bring.
select
  tenant_id,
  tool,
  sum(calls)::bigint as calls,
  round(sum(calls * greatest(retry_rate, loop_rate, duplicate_rate, validation_failure_rate, unknown_outcome_rate, 0))
    ::numeric, 1) as wasted_calls,
  (array_agg(worst order by calls desc, day desc))[1] as worst,
  (array_agg(design_problem order by calls desc, day desc))[1] as design_problem
from callgate.tool_quality
where day > (now() at time zone 'utc')::date - 7
group by tenant_id, tool
order by wasted_calls desc, calls desc, tenant_id, tool;
