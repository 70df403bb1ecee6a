alter table counter
  add column tier text collate "C" not null default '',
  add column stretch bigint not null default 0,
  drop constraint counter_pkey,
  add primary key (tenant_id, agent_id, day, dimension, tier, stretch);
comment on column counter.tier is 'For a rate limit: the tier; empty for a budget.';
comment on column counter.stretch is 'For a rate limit: which of its stretches of time since the Unix epoch.';
