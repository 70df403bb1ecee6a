create table retry_hourly (
  tenant_id bigint not null,
  tool text collate "C" not null,
  failure smallint not null,
  kind smallint not null,
  wait smallint not null,
  attempt smallint not null,
  tool_state smallint not null,
  hour timestamptz not null,
  trials bigint not null,
  successes bigint not null,
  primary key (tenant_id, tool, failure, kind, wait, attempt, tool_state, hour)
);
create index retry_hourly_hour on retry_hourly (tenant_id, hour);
comment on table retry_hourly is 'Follow-ups on failures an hour: raw counts, so that a half-life may change without a backfill.';
comment on column retry_hourly.tenant_id is 'The tenant.';
comment on column retry_hourly.tool is 'The tool.';
comment on column retry_hourly.failure is 'What had gone wrong; codes as in outcome.failure.';
comment on column retry_hourly.kind is 'The follow-up: 0 same arguments (a retry), 1 near, 2 changed (corrections).';
comment on column retry_hourly.wait is 'The measured wait: 0 below 2 s, 1 below 8 s, 2 below 30 s, 3 below 120 s, 4 longer.';
comment on column retry_hourly.attempt is 'Which attempt had failed; 3 stands for later ones too.';
comment on column retry_hourly.tool_state is 'How the tool fared: 0 working, 1 failing for less than a minute, 2 for longer.';
comment on column retry_hourly.hour is 'The hour of the outcome.';
comment on column retry_hourly.trials is 'Follow-ups.';
comment on column retry_hourly.successes is 'Those that did not fail.';
