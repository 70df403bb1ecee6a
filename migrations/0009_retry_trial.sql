create table retry_trial (
  shard smallint not null,
  tenant_id bigint not null,
  epoch date not null,
  session_id text collate "C" not null,
  permit_seq bigint not null,
  seq bigint not null
);
-- A queue: rows are found by where they are, so an index would only cost. Replication of their deletion needs the row.
alter table retry_trial replica identity full;
comment on table retry_trial is 'Outcomes of follow-ups that the rollups do not count yet. Written with the outcome, taken away when counted.';
comment on column retry_trial.shard is 'The shard of its call tree: a hash of tenant and root, 0 to 1,023.';
comment on column retry_trial.tenant_id is 'The tenant.';
comment on column retry_trial.epoch is 'The epoch of its call tree.';
comment on column retry_trial.session_id is 'The session.';
comment on column retry_trial.permit_seq is 'The seq of the follow-up''s call row.';
comment on column retry_trial.seq is 'The seq of its outcome row.';
