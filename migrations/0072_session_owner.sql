create table session_owner (
  shard smallint not null,
  tenant_id bigint not null,
  root_id text collate "C" not null,
  owner text collate "C" not null,
  created_at timestamptz not null default now(),
  primary key (shard, tenant_id, root_id)
);
comment on table session_owner is 'Who works in a call tree: the first who did with a credential. Without a row nobody has yet.';
comment on column session_owner.shard is 'Where the tree is kept: a hash of tenant and root, 0 to 1,023.';
comment on column session_owner.tenant_id is 'The tenant.';
comment on column session_owner.root_id is 'The root session of the tree.';
comment on column session_owner.owner is 'Whose it is: the name of their credential.';
comment on column session_owner.created_at is 'Since when.';
