create table forgotten (
  tenant_id bigint not null,
  forgotten_id bigint generated always as identity,
  salt bytea not null,
  marks bigint[] not null,
  forgotten_at timestamptz not null default clock_timestamp(),
  primary key (tenant_id, forgotten_id)
);
create index forgotten_at on forgotten (forgotten_at);
comment on table forgotten is 'What replicas have to forget in memory too. A row is deleted after an hour.';
comment on column forgotten.tenant_id is 'The tenant.';
comment on column forgotten.forgotten_id is 'Counts them.';
comment on column forgotten.salt is 'What keeps the marks from being looked up: drawn for each forgetting.';
comment on column forgotten.marks is 'The first 8 bytes each of SHA-256 of the salt and a name, of the root session of a call tree or of an agent: what they are called cannot be read from it.';
comment on column forgotten.forgotten_at is 'When it was forgotten.';
