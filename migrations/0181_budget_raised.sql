-- A raised budget is stored as a grant that is taken back: the release before knows no other kind, and does nothing for a
-- grant that it does not know, so that it serves such sessions by the policy's own limit. Readers see what it is.
create or replace view operator_events as
select tenant_id, at, actor, case when detail ? 'dimension' then 'budget_raised' else kind end as kind, root_id, session_id,
  null::text as subject, reason, detail
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
comment on column session_event.detail is 'The question and its answer, the question that was withdrawn, the phase and plan, the call and what came of it, or the grant; with a dimension, what a budget was raised by beyond the policy''s limit, in all, and of the kind revoked.';
comment on column operator_events.kind is 'What: the kind of a session event (answered, phase_set, granted, revoked), budget_raised, halted, resumed or policy_activated.';
