create table tool_health (
  tenant_id bigint not null,
  tool text collate "C" not null,
  succeeded_at timestamptz,
  failures integer not null,
  failing_since timestamptz,
  cooldown_failure smallint,
  cooldown_since timestamptz,
  cooldown_until timestamptz,
  probe_until timestamptz,
  retries_used double precision not null,
  used_at timestamptz not null,
  changed_at timestamptz not null,
  primary key (tenant_id, tool)
) with (fillfactor = 50);
comment on table tool_health is 'How each tool fares for all sessions. Every replica adds what it has seen each second, and reads what the others have.';
comment on column tool_health.tenant_id is 'The tenant.';
comment on column tool_health.tool is 'The tool.';
comment on column tool_health.succeeded_at is 'Its last success.';
comment on column tool_health.failures is 'Failures since then that may pass by themselves.';
comment on column tool_health.failing_since is 'The first of them.';
comment on column tool_health.cooldown_failure is 'Why it is left alone; codes as in outcome.failure. Null: it is not.';
comment on column tool_health.cooldown_since is 'Since when.';
comment on column tool_health.cooldown_until is 'Until when; after that one call at a time finds out how it fares.';
comment on column tool_health.probe_until is 'Until when such a call is waited for.';
comment on column tool_health.retries_used is 'Retries advised and not yet earned back by calls and time.';
comment on column tool_health.used_at is 'When that was so.';
comment on column tool_health.changed_at is 'When this row changed.';
