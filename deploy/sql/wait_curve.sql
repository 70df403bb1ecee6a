-- Does waiting help?
--
-- The chance of a retry after 1, 4, 15, 60 and 300 seconds, for each tool, kind of failure and state of the tool.
-- How to read it: a row that rises to the right is a limit or a lock that time opens: wait. A flat row is a failure that
-- either passes at once or never. A row of a tool that is down shows what an outage leaves of the chance.
select
  tenant_id,
  tool,
  failure,
  tool_state,
  round(max(p) filter (where wait = 0)::numeric, 3) as after_1_s,
  round(max(p) filter (where wait = 1)::numeric, 3) as after_4_s,
  round(max(p) filter (where wait = 2)::numeric, 3) as after_15_s,
  round(max(p) filter (where wait = 3)::numeric, 3) as after_60_s,
  round(max(p) filter (where wait = 4)::numeric, 3) as after_300_s,
  round(sum(cell_trials)::numeric, 1) as trials
from callgate.retry_profiles
where attempt = 1
group by tenant_id, tool, failure, tool_state
order by tenant_id, tool, failure, tool_state = 'down', tool_state = 'failing';
