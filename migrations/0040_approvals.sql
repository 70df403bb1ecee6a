create view approvals as
select distinct on (c.tenant_id, c.approval_id)
  c.tenant_id,
  c.approval_id,
  c.root_id,
  c.session_id,
  c.agent_id,
  c.call_id,
  c.tool,
  c.arguments,
  c.justification,
  c.rule,
  f.finding ->> 'message' as message,
  c.policy_version,
  c.at as asked_at,
  c.approval_expires_at as expires_at,
  case
    when e.kind = 'withdrawn' then 'withdrawn'
    when e.seq is not null then case when (e.detail ->> 'approved')::boolean then 'approved' else 'denied' end
    when c.approval_expires_at > now() then 'pending'
    else 'expired'
  end as status,
  e.actor as answered_by,
  e.at as answered_at,
  e.reason as answer,
  (extract(epoch from e.at - c.at) * 1000)::bigint as waited_ms,
  e.detail #>> '{clears,resource}' as cleared_resource,
  to_timestamp((e.detail #>> '{clears,until_ms}')::bigint / 1000.0) as cleared_until
from call c
left join lateral (
  select x.* from session_event x
  where x.shard = c.shard and x.tenant_id = c.tenant_id and x.root_id = c.root_id and x.epoch = c.epoch
    and x.kind in ('answered', 'withdrawn') and x.detail ->> 'approval_id' = c.approval_id
  order by x.seq
  limit 1
) e on true
left join lateral (
  select x.finding from jsonb_array_elements(c.findings) with ordinality x (finding, place)
  where x.finding ->> 'rule' = c.rule and x.finding ->> 'decision' = 'ASK'
  order by x.place
  limit 1
) f on true
where c.approval_id is not null
order by c.tenant_id, c.approval_id, c.seq;
comment on view approvals is 'Questions to people: what was asked, by whom, and what was answered. A call that asks again under the same question has one row.';
comment on column approvals.tenant_id is 'The tenant.';
comment on column approvals.approval_id is 'Names the question.';
comment on column approvals.root_id is 'The root of the call tree.';
comment on column approvals.session_id is 'The session that asked.';
comment on column approvals.agent_id is 'The agent that asked.';
comment on column approvals.call_id is 'The call that waits for the answer.';
comment on column approvals.tool is 'The tool.';
comment on column approvals.arguments is 'The arguments in canonical JSON.';
comment on column approvals.justification is 'Why the agent wanted it, in its words.';
comment on column approvals.rule is 'The rule that made it a question.';
comment on column approvals.message is 'What that rule said.';
comment on column approvals.policy_version is 'The policy that asked.';
comment on column approvals.asked_at is 'When it was asked first.';
comment on column approvals.expires_at is 'When it counts as denied, unless it is answered.';
comment on column approvals.status is 'Where it stands: pending, approved, denied, expired, withdrawn by who asked.';
comment on column approvals.answered_by is 'Who answered or withdrew it; null while nobody has.';
comment on column approvals.answered_at is 'When.';
comment on column approvals.answer is 'What was said with the answer or the withdrawal.';
comment on column approvals.waited_ms is 'From question to answer or withdrawal, in milliseconds.';
comment on column approvals.cleared_resource is 'The thing that further calls of the tool may touch without a question; null for the one call alone, or for all of the tool''s calls.';
comment on column approvals.cleared_until is 'Until when further calls are let through by this answer; null: it holds for the one call alone.';
