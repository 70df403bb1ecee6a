alter table call
  add column retry_of bigint,
  add column retry_kind smallint,
  add column retry_failure smallint,
  add column retry_attempt integer,
  add column waited_ms bigint,
  add column tool_state smallint,
  add column p_predicted double precision,
  add column retryable_said boolean,
  add column probe boolean,
  add column p_slow double precision,
  add column p_at_wait double precision,
  add column features real[];
comment on column call.retry_of is 'The failed call of its session that this one follows up on, by the seq of its permit; null when it follows up on none.';
comment on column call.retry_kind is 'How: 0 same arguments (a retry), 1 near, 2 changed (corrections).';
comment on column call.retry_failure is 'What had gone wrong; codes as in outcome.failure.';
comment on column call.retry_attempt is 'Which attempt had failed.';
comment on column call.waited_ms is 'From the failure''s report to this permit, in milliseconds: measured, not advised.';
comment on column call.tool_state is 'How the tool fared then, over all sessions: 0 working, 1 failing for less than a minute, 2 for longer.';
comment on column call.p_predicted is 'The chance that was told with the failure.';
comment on column call.retryable_said is 'Whether a retry was advised with the failure.';
comment on column call.probe is 'It was advised against the estimate, to learn.';
comment on column call.p_slow is 'The chance for the wait that really was, before the recent level.';
comment on column call.p_at_wait is 'The chance for the wait that really was.';
comment on column call.features is 'What the logistic layer looks at: ln(1+wait s), attempt, ln(1+same errors in the session), ln(1+calls of the tool in a row), ln(1+age of the session s), previous call did not fail, share of the tool''s calls that failed lately, ln(1+failures in a row), ln(1+failing for s), ln((wait+1)/(failing for+1)).';
