-- For search by names. No name is a column of an index on call, which would be written with every call.
create table call_name (
  tenant_id bigint not null,
  hour timestamptz not null,
  kind smallint not null,
  name text collate "C" not null,
  word text collate "C" not null,
  primary key (tenant_id, hour, kind, name)
);
create index call_name_word on call_name (tenant_id, word);
comment on table call_name is 'The names of agents, users and tools by the hour of their calls. Written with call_hourly, in the same transaction.';
comment on column call_name.tenant_id is 'The tenant.';
comment on column call_name.hour is 'The beginning of the UTC hour in which the calls were judged.';
comment on column call_name.kind is 'Of what: 0 agent, 1 user, 2 tool.';
comment on column call_name.name is 'The name.';
comment on column call_name.word is 'The name in small ASCII letters, by which it is found.';
-- Its own mark: a build before this one counts hours without their names.
alter table tenant add column names_counted_before timestamptz;
comment on column tenant.names_counted_before is 'Start of the first hour whose names call_name may lack; null before the first count.';
