-- As 0040 has it, with what was approved instead.
create or replace view approvals as
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
    when e.detail -> 'edit' is not null then 'edited'
    when e.seq is not null then case when (e.detail ->> 'approved')::boolean then 'approved' else 'denied' end
    when c.approval_expires_at > now() then 'pending'
    else 'expired'
  end as status,
  e.actor as answered_by,
  e.at as answered_at,
  e.reason as answer,
  (extract(epoch from e.at - c.at) * 1000)::bigint as waited_ms,
  e.detail #>> '{clears,resource}' as cleared_resource,
  to_timestamp((e.detail #>> '{clears,until_ms}')::bigint / 1000.0) as cleared_until,
  e.detail #>> '{edit,arguments}' as edited_arguments,
  e.detail #>> '{edit,digest}' as edited_digest
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
comment on column approvals.status is 'Where it stands: pending, approved, edited (approved with other arguments; the call itself does not run), denied, expired, withdrawn by who asked.';
comment on column approvals.edited_arguments is 'The arguments that were approved instead of those that were asked about, in canonical JSON.';
comment on column approvals.edited_digest is 'The digest of the tool and those arguments, hexadecimal.';
