create table retry_recent (
  tenant_id bigint not null,
  tool text collate "C" not null,
  failure smallint not null,
  bucket timestamptz not null,
  trials bigint not null,
  successes bigint not null,
  expected double precision not null,
  primary key (tenant_id, tool, failure, bucket)
);
comment on table retry_recent is 'Retries in ten minutes, beside what was expected of them: the recent level.';
comment on column retry_recent.tenant_id is 'The tenant.';
comment on column retry_recent.tool is 'The tool.';
comment on column retry_recent.failure is 'What had gone wrong; codes as in outcome.failure.';
comment on column retry_recent.bucket is 'The ten minutes of the outcome, by their beginning.';
comment on column retry_recent.trials is 'Retries with the same arguments.';
comment on column retry_recent.successes is 'Those that did not fail.';
comment on column retry_recent.expected is 'Those that were expected not to: the sum of call.p_slow.';
