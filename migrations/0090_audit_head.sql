create table audit_head (
  tenant_id bigint primary key,
  number bigint not null,
  hash bytea not null
);
comment on table audit_head is 'Where each tenant''s audit stands. Whoever adds an entry holds this row until its commit, so that entries have no gaps.';
comment on column audit_head.tenant_id is 'The tenant.';
comment on column audit_head.number is 'The number of its newest entry.';
comment on column audit_head.hash is 'The hash of that entry.';
