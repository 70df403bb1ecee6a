create view findings as
select
  c.tenant_id,
  c.root_id,
  c.session_id,
  c.call_id,
  c.seq,
  c.round,
  c.at as judged_at,
  c.run_from,
  c.agent_id,
  c.tool,
  x.finding ->> 'rule' as rule,
  x.finding ->> 'decision' as decision,
  x.finding ->> 'reason' as reason,
  x.finding ->> 'level' as level,
  (x.finding ->> 'count')::bigint as count,
  x.finding ->> 'message' as message,
  x.finding ->> 'next_action' as next_action,
  (x.finding ->> 'enforced')::boolean as enforced,
  -- Budgets, the rate brake and names that do not exist have levels too, and are no loops.
  x.finding ->> 'level' is not null and x.finding ->> 'rule' not in ('budget', 'growth', 'unknown_tool') as is_loop
from call c
cross join lateral jsonb_array_elements(c.findings) x (finding)
where c.findings is not null;
comment on view findings is 'Everything that the rules had to say: one row a finding of a judgement, the deciding one and the others.';
comment on column findings.tenant_id is 'The tenant.';
comment on column findings.root_id is 'The root of the call tree.';
comment on column findings.session_id is 'The session that asked.';
comment on column findings.call_id is 'The call, as its caller names it.';
comment on column findings.seq is 'The judgement''s place among the events of its call tree.';
comment on column findings.round is 'The n-th judgement of this call, from 1.';
comment on column findings.judged_at is 'When it was judged.';
comment on column findings.run_from is 'Tells the runs of a session apart: the seq of the first event of its run.';
comment on column findings.agent_id is 'The agent that asked.';
comment on column findings.tool is 'The tool.';
comment on column findings.rule is 'The rule that found it.';
comment on column findings.decision is 'What this finding alone would have decided: ALLOW, ASK, WAIT, REUSE, DENY, STOP.';
comment on column findings.reason is 'Its reason.';
comment on column findings.level is 'Its own level: warning, critical, break; null for rules without levels.';
comment on column findings.count is 'What was counted, for loops and budgets.';
comment on column findings.message is 'What it says to the model.';
comment on column findings.next_action is 'What to do next, alone.';
comment on column findings.enforced is 'False when it was recorded in shadow mode, and not applied.';
comment on column findings.is_loop is 'It comes from a loop detector: it has a level, and is no budget, no rate and no tool that does not exist.';
