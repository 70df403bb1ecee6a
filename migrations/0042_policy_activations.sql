create view policy_activations as
select
  a.tenant_id,
  a.revision,
  left(a.hash, 16) as policy_version,
  a.activated_at,
  lead(a.activated_at) over (partition by a.tenant_id order by a.revision) as replaced_at,
  a.activated_by,
  a.note,
  p.applied_by as written_by,
  p.applied_at as written_at,
  a.hash,
  p.text
from policy_activation a
left join policy p on p.tenant_id = a.tenant_id and p.hash = a.hash;
comment on view policy_activations is 'Which policy was active when, and who activated it.';
comment on column policy_activations.tenant_id is 'The tenant.';
comment on column policy_activations.revision is 'Counts the activations, from 1.';
comment on column policy_activations.policy_version is 'The policy, as policy_version of callgate.tool_call names it.';
comment on column policy_activations.activated_at is 'Since when it was active.';
comment on column policy_activations.replaced_at is 'Until when; null for the active one.';
comment on column policy_activations.activated_by is 'Who activated it.';
comment on column policy_activations.note is 'Why, in their words.';
comment on column policy_activations.written_by is 'Who applied it the first time.';
comment on column policy_activations.written_at is 'When that was.';
comment on column policy_activations.hash is 'SHA-256 of the text, hexadecimal.';
comment on column policy_activations.text is 'The file.';
