create table session (
  shard smallint not null,
  tenant_id bigint not null,
  session_id text collate "C" not null,
  root_id text collate "C" not null,
  parent_id text collate "C",
  depth integer not null,
  created_at timestamptz not null default now(),
  primary key (shard, tenant_id, session_id)
);
create index session_root on session (shard, tenant_id, root_id, session_id);
comment on table session is 'One agent conversation and its place in a call tree. Written once. A sub-session has two rows: one in its own shard, by which its tree is found, and one in the shard of its tree.';
comment on column session.shard is 'A hash, 0 to 1,023: of tenant and session, since a session is looked for by its name alone, or of tenant and root, to be with its tree.';
comment on column session.tenant_id is 'The tenant.';
comment on column session.session_id is 'The session, as its caller names it.';
comment on column session.root_id is 'The root of its call tree; itself, for a root.';
comment on column session.parent_id is 'The session that started it; null for a root.';
comment on column session.depth is 'How deep it is nested; 0 for a root.';
comment on column session.created_at is 'When it was first heard of.';
