create table ledger (
  shard smallint not null,
  tenant_id bigint not null,
  ledger_key bytea not null,
  revision bigint not null,
  state smallint not null,
  root_id text,
  session_id text,
  call_id text,
  epoch date,
  fingerprint bytea,
  seq bigint,
  occurrence bigint,
  attempt integer,
  permitted_at timestamptz,
  lease_until timestamptz,
  settled_at timestamptz,
  digest bytea,
  retryable boolean,
  retry_after_ms bigint,
  retries_remaining integer,
  guard smallint,
  primary key (shard, tenant_id, ledger_key)
) with (fillfactor = 70);
comment on table ledger is 'The last execution of every declared write: within its call tree, or within the tenant for tools that may act only once. Outlives the partitions of call.';
comment on column ledger.shard is 'The shard of its call tree; of a row that trees share, a hash of tenant and key.';
comment on column ledger.tenant_id is 'The tenant.';
comment on column ledger.ledger_key is 'SHA-256 of the fingerprint and its reach; the first bit is set where more than one call tree may ask for the row.';
comment on column ledger.revision is 'Counts changes, from 1.';
comment on column ledger.state is 'Where it stands: 0 vacant, 1 permitted, 2 succeeded, 3 failed, 4 unknown, 5 cancelled.';
comment on column ledger.root_id is 'The call tree that has it.';
comment on column ledger.session_id is 'The session that has it.';
comment on column ledger.call_id is 'The call that has it.';
comment on column ledger.epoch is 'The epoch of that call tree.';
comment on column ledger.fingerprint is 'SHA-256 of tool and canonical arguments.';
comment on column ledger.seq is 'The seq of the permit.';
comment on column ledger.occurrence is 'The intended execution.';
comment on column ledger.attempt is 'The attempt.';
comment on column ledger.permitted_at is 'When it was permitted.';
comment on column ledger.lease_until is 'When its outcome counts as unknown unless recorded.';
comment on column ledger.settled_at is 'When its outcome was recorded.';
comment on column ledger.digest is 'What it answered.';
comment on column ledger.retryable is 'Advice after a failure: is a retry worth it?';
comment on column ledger.retry_after_ms is 'Advice after a failure: the wait, in milliseconds.';
comment on column ledger.retries_remaining is 'Advice after a failure: how many more tries.';
comment on column ledger.guard is 'Advice after a failure: what overruled the chance; codes as in outcome.guard, null nothing.';
