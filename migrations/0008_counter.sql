create table counter (
  shard smallint not null,
  tenant_id bigint not null,
  agent_id text collate "C" not null,
  day date not null,
  dimension smallint not null,
  used bigint not null,
  tier text collate "C" not null,
  tier_window bigint not null,
  primary key (shard, tenant_id, agent_id, day, dimension, tier, tier_window)
) with (fillfactor = 20);
comment on table counter is 'What an agent or the whole tenant has spent on a day, for limits that many call trees share.';
comment on column counter.shard is 'A hash of tenant and agent, 0 to 1,023: what one agent spends is together.';
comment on column counter.tenant_id is 'The tenant.';
comment on column counter.agent_id is 'The agent; empty for the tenant''s own counter.';
comment on column counter.day is 'The UTC day.';
comment on column counter.dimension is 'What is counted: 0 steps, 1 tool calls, 2 cost in millionths of a US dollar, 3 tokens.';
comment on column counter.used is 'Spent and reserved.';
comment on column counter.tier is 'For a rate limit: the tier; empty for a budget.';
comment on column counter.tier_window is 'For a rate limit: which of its windows of time since the Unix epoch.';
