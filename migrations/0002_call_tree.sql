-- The versioned unit: every event of a tree moves its version, and whoever decided on an old one is told to judge
-- again. A low fillfactor, and no index on what every event changes, so that updates stay heap-only: `due` is left as
-- it is while it is early enough.
create table call_tree (
  shard smallint not null,
  tenant_id bigint not null,
  root_id text collate "C" not null,
  epoch date not null,
  version bigint not null,
  started_at timestamptz not null,
  last_at timestamptz not null,
  steps bigint not null default 0,
  calls bigint not null default 0,
  open_calls integer not null default 0,
  cost_micros bigint not null default 0,
  reserved_micros bigint not null default 0,
  tokens bigint not null default 0,
  due timestamptz,
  primary key (shard, tenant_id, root_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index call_tree_due on call_tree (due) where due is not null;
comment on table call_tree is 'A root session with all its sub-agents: one row with version and totals.';
comment on column call_tree.shard is 'Where the tree and all that belongs to it is kept: a hash of tenant and root, 0 to 1,023.';
comment on column call_tree.tenant_id is 'The tenant.';
comment on column call_tree.root_id is 'The root session.';
comment on column call_tree.epoch is 'The UTC day of its first event; the partition of its calls and outcomes.';
comment on column call_tree.version is 'The seq of its last event.';
comment on column call_tree.started_at is 'When its first event happened.';
comment on column call_tree.last_at is 'When its last event happened.';
comment on column call_tree.steps is 'New call ids, refused ones too.';
comment on column call_tree.calls is 'Permitted calls.';
comment on column call_tree.open_calls is 'Permitted calls without an outcome.';
comment on column call_tree.cost_micros is 'Booked cost, in millionths of a US dollar.';
comment on column call_tree.reserved_micros is 'Cost reserved for calls that are not settled, in millionths of a US dollar.';
comment on column call_tree.tokens is 'Tokens of the model, of every kind.';
comment on column call_tree.due is 'When somebody has to look after its open permits: the earliest end of a lease, or earlier. Null: nothing is open.';
