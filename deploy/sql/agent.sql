-- What did this agent do, and why was it refused?
--
-- The calls of the last day in their order, with what was decided and said, what came of them and who approved them.
-- How to read it: one agent or session is chosen without touching the file, by a setting of the connection:
-- PGOPTIONS="-c callgate.agent=billing" (or -c callgate.session=s-1) psql -f agent.sql. A refusal stands with its
-- message, as the model read it.
with wanted as materialized (
  select
    coalesce(current_setting('callgate.agent', true), '') as agent,
    coalesce(current_setting('callgate.session', true), '') as session
)
select
  tenant_id,
  agent_id,
  session_id,
  to_char(first_judged_at at time zone 'utc', 'HH24:MI:SS') as at,
  tool,
  left(arguments, 80) as arguments,
  decision,
  outcome,
  case when decision = 'ALLOW' then failure else reason end as why,
  case when decision = 'ALLOW' then left(split_part(error_message, e'\n', 1), 160) else left(message, 160) end as said,
  earlier_attempts,
  approved_by,
  round(cost_micros / 1e6, 4) as usd
from callgate.tool_call cross join wanted
where judged_at > now() - interval '1 day'
  and wanted.agent in ('', agent_id)
  and wanted.session in ('', session_id)
order by tenant_id, session_id, first_judged_at, call_id
limit 500;
