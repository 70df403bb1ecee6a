create view operator_events as
select tenant_id, at, actor, kind, root_id, session_id, null::text as subject, reason, detail
from session_event
where actor is not null
union all
select tenant_id, halted_at, halted_by, 'halted', null, case kind when 'session' then name end,
  kind || case when name = '' then '' else ' ' || name end, reason, jsonb_build_object('halt_id', halt_id)
from halt
union all
select tenant_id, resumed_at, resumed_by, 'resumed', null, case kind when 'session' then name end,
  kind || case when name = '' then '' else ' ' || name end, null, jsonb_build_object('halt_id', halt_id)
from halt
where resumed_at is not null
union all
select tenant_id, activated_at, activated_by, 'policy_activated', null, null, 'policy ' || left(hash, 16), note,
  jsonb_build_object('revision', revision)
from policy_activation;
comment on view operator_events is 'What people did: answers, phases, grants, halts, resumes and policies, with who and why.';
comment on column operator_events.tenant_id is 'The tenant.';
comment on column operator_events.at is 'When.';
comment on column operator_events.actor is 'Who.';
comment on column operator_events.kind is 'What: the kind of a session event (answered, phase_set, granted, revoked), halted, resumed or policy_activated.';
comment on column operator_events.root_id is 'The root of the call tree; null for what concerns no session alone.';
comment on column operator_events.session_id is 'The session; null for what concerns no session alone.';
comment on column operator_events.subject is 'What was halted, resumed or activated; null otherwise.';
comment on column operator_events.reason is 'Why, in their words.';
comment on column operator_events.detail is 'The question and its answer, the phase and plan, the grant, the halt or the revision.';
