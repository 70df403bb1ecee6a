-- Where does the money go?
--
-- The call trees of the last seven days that cost most, with their sub-agents.
-- How to read it: cost_usd is the tree's; own_usd is what its root spent itself, the rest is its sub-agents'. Compare
-- usd_per_call with its neighbours: a tree that is dear for each call has a long context, one with many calls a long task
-- or a loop.
select
  tenant_id,
  root_id,
  count(*) as sessions,
  sum(calls)::bigint as calls,
  sum(tokens)::bigint as tokens,
  round(sum(cost_micros) / 1e6, 4) as cost_usd,
  round(coalesce(sum(cost_micros) filter (where session_id = root_id), 0) / 1e6, 4) as own_usd,
  round(sum(cost_micros) / 1e6 / nullif(sum(calls), 0), 4) as usd_per_call,
  max(last_at) - min(first_at) as lasted
from callgate.session_costs
group by tenant_id, root_id
having max(last_at) > now() - interval '7 days' and sum(cost_micros) > 0
order by cost_usd desc, root_id
limit 50;
