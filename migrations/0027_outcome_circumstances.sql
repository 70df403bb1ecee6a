alter table outcome
  add column tool_state smallint,
  add column failure_share real,
  add column failures integer,
  add column failing_ms bigint;
comment on column outcome.tool_state is 'For a failure: how the tool fared then, this failure included: 0 working, 1 failing for less than a minute, 2 for longer.';
comment on column outcome.failure_share is 'For a failure: the share of the tool''s calls that failed in the last minutes.';
comment on column outcome.failures is 'For a failure: the tool''s failures in a row, this one included, over all sessions.';
comment on column outcome.failing_ms is 'For a failure: how long the tool had been failing, in milliseconds.';
comment on column call.tool_state is 'How the tool fared when the failure was reported, over all sessions: 0 working, 1 failing for less than a minute, 2 for longer.';
