-- Only the parents are locked for it, and no row is written. Nearly all rows have neither, which takes no room.
alter table call add column model text, add column approval_group text;
alter table outcome add column model text;
comment on column call.model is 'The model of the usage sent with it, by the name that its provider bills; null when unknown.';
comment on column call.approval_group is 'The group that may answer the approval request first; null without one, and where every approver may.';
comment on column call.reserved_micros is 'With a permit, the cost reserved with it; without one, the expected cost of the call that did not run. In millionths of a US dollar.';
comment on column outcome.model is 'The model of the usage sent with it, by the name that its provider bills; null when unknown.';
-- For the view calls: both hold few rows.
create index call_again on only call (shard, tenant_id, epoch, session_id, call_id, round) where round > 1;
create index outcome_early on only outcome (shard, tenant_id, epoch, session_id, permit_seq, seq)
  where status <> 1 or inferred;
-- For the hourly rollup, which reads what was reported since its last run.
create index outcome_at on only outcome using brin (at) with (pages_per_range = 32);
-- Row-level security asks it once a query; without this no query of a person would use more than one process.
alter function readable_tenants() parallel safe;
