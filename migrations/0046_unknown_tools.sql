create view unknown_tools as
select
  tenant_id,
  tool,
  count(distinct (session_id, call_id)) as calls,
  count(distinct session_id) as sessions,
  count(distinct agent_id) as agents,
  min(judged_at) as first_at,
  max(judged_at) as last_at,
  (array_agg(next_action order by judged_at desc) filter (where next_action is not null))[1] as told
from findings
where rule = 'unknown_tool'
group by tenant_id, tool;
comment on view unknown_tools is 'Names that agents called and that are no tools: one row a name.';
comment on column unknown_tools.tenant_id is 'The tenant.';
comment on column unknown_tools.tool is 'The name.';
comment on column unknown_tools.calls is 'Calls to it, each counted once.';
comment on column unknown_tools.sessions is 'Sessions that called it.';
comment on column unknown_tools.agents is 'Agents that called it.';
comment on column unknown_tools.first_at is 'When it was called first.';
comment on column unknown_tools.last_at is 'When it was called last.';
comment on column unknown_tools.told is 'What the agent was told to call instead; null when no name is near.';
