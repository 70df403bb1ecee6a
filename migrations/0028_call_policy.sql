alter table call
  add column uses jsonb,
  add column terminal boolean not null default false,
  add column share smallint not null default 0,
  add column coerced jsonb;
comment on column call.uses is 'The tiers and grants that its permit used, as it left them: key, opened_ms, used, paced_ms.';
comment on column call.terminal is 'A way out, never blocked nor charged.';
comment on column call.share is 'Who shares what it has done: 0 its call tree, 1 all sessions of its agent, 2 the tenant.';
comment on column call.coerced is 'Fields whose values had another type than the tool takes and were read as the right one.';
