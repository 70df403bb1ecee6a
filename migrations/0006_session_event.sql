create table session_event (
  shard smallint not null,
  tenant_id bigint not null,
  root_id text collate "C" not null,
  epoch date not null,
  seq bigint not null,
  session_id text collate "C" not null,
  at timestamptz not null,
  kind text not null,
  actor text,
  reason text,
  detail jsonb not null,
  primary key (shard, tenant_id, root_id, epoch, seq)
);
comment on table session_event is 'Append-only: what happened to sessions from outside their calls, and who did it.';
comment on column session_event.shard is 'The shard of its call tree: a hash of tenant and root, 0 to 1,023.';
comment on column session_event.tenant_id is 'The tenant.';
comment on column session_event.root_id is 'The root of its call tree.';
comment on column session_event.epoch is 'The epoch of its call tree.';
comment on column session_event.seq is 'Its place among the events of its call tree.';
comment on column session_event.session_id is 'The session.';
comment on column session_event.at is 'When, by the database''s time.';
comment on column session_event.kind is 'What: answered, seconded (a yes that needs another one), withdrawn, phase_set, compacted, outcome_settled, granted, revoked.';
comment on column session_event.actor is 'Who; null when the plane or the asking call itself did.';
comment on column session_event.reason is 'Why, in their words.';
comment on column session_event.detail is 'The question and its answer, the question that was withdrawn, the phase and plan, the call and what came of it, or the grant.';
