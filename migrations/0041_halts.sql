create view halts as
select tenant_id, halt_id, kind, name, halted_at, halted_by, reason, resumed_at, resumed_by, resumed_at is null as holds
from halt;
comment on view halts is 'The kill switch: what was halted, by whom and for how long.';
comment on column halts.tenant_id is 'The tenant.';
comment on column halts.halt_id is 'Numbers the halts.';
comment on column halts.kind is 'What was halted: session, agent, tool, tenant.';
comment on column halts.name is 'Its name; empty for the tenant.';
comment on column halts.halted_at is 'Since when.';
comment on column halts.halted_by is 'Who halted it.';
comment on column halts.reason is 'Why; told to models and people.';
comment on column halts.resumed_at is 'Until when; null while it holds.';
comment on column halts.resumed_by is 'Who resumed it.';
comment on column halts.holds is 'It still holds.';
