create table retry_job (
  id smallint primary key check (id = 1),
  holder text,
  held_until timestamptz,
  version bigint not null default 0,
  counted_at timestamptz
);
insert into retry_job (id) values (1);
comment on table retry_job is 'One row: which replica counts trials into the rollups, and how far it has come.';
comment on column retry_job.id is 'Always 1.';
comment on column retry_job.holder is 'The replica that counts.';
comment on column retry_job.held_until is 'Until when no other replica may.';
comment on column retry_job.version is 'Counts the times that rollups changed: readers need to look only when it moves.';
comment on column retry_job.counted_at is 'When they changed last.';
