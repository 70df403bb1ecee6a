create table halt (
  tenant_id bigint not null,
  halt_id bigint generated always as identity,
  kind text not null,
  name text collate "C" not null,
  halted_at timestamptz not null default now(),
  halted_by text not null,
  reason text not null,
  resumed_at timestamptz,
  resumed_by text,
  primary key (tenant_id, halt_id)
);
create unique index halt_holds on halt (tenant_id, kind, name) where resumed_at is null;
comment on table halt is 'The kill switch: one row from a halt to its resume.';
comment on column halt.tenant_id is 'The tenant.';
comment on column halt.halt_id is 'Numbers the halts.';
comment on column halt.kind is 'What is halted: session, agent, tool, tenant.';
comment on column halt.name is 'Its name; empty for the tenant.';
comment on column halt.halted_at is 'Since when.';
comment on column halt.halted_by is 'Who halted it.';
comment on column halt.reason is 'Why; told to models and people.';
comment on column halt.resumed_at is 'Until when; null while it holds.';
comment on column halt.resumed_by is 'Who resumed it.';
