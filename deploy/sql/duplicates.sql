-- What is asked for again although it has been answered?
--
-- Calls of the last seven days that were answered with an earlier result, by tool and arguments.
-- How to read it: many sessions with few repeats each point to the tool (its answer does not say that it is complete);
-- one session with many points to that agent's prompt, or to a context that was compacted too hard.
select
  tenant_id,
  tool,
  left(arguments, 200) as arguments,
  count(*) as repeats,
  count(distinct session_id) as sessions,
  max(judged_at) as last_at
from callgate.tool_call
where reason = 'duplicate_call_blocked' and judged_at > now() - interval '7 days'
group by tenant_id, tool, arguments
order by repeats desc, last_at desc
limit 50;
