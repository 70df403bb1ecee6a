create table outcome (
  shard smallint not null,
  tenant_id bigint not null,
  epoch date not null,
  session_id text collate "C" not null,
  permit_seq bigint not null,
  seq bigint not null,
  root_id text collate "C" not null,
  call_id text collate "C" not null,
  at timestamptz not null,
  status smallint not null,
  failure smallint,
  error_signature text,
  digest bytea,
  progress boolean not null,
  retryable boolean,
  retry_after_ms bigint,
  retries_remaining integer,
  p_success double precision,
  p_low double precision,
  p_high double precision,
  confidence smallint,
  basis smallint,
  guard smallint,
  lease_until timestamptz,
  by_lease boolean not null,
  input_tokens bigint,
  output_tokens bigint,
  cache_read_tokens bigint,
  cache_write_tokens bigint,
  cost_micros bigint,
  duration_ms bigint,
  is_complete boolean,
  total_matches bigint,
  progress_note text,
  result text,
  result_bytes bigint,
  error_message text,
  follow_up_ok boolean,
  trials double precision,
  as_of timestamptz,
  probe boolean,
  tool_state smallint,
  failure_share real,
  failures integer,
  failing_ms bigint,
  sketch bytea,
  kept boolean not null default false,
  marks jsonb,
  news boolean not null default true,
  gist text,
  made text,
  error_line text,
  primary key (shard, tenant_id, epoch, session_id, permit_seq, seq)
) partition by range (epoch);
comment on table outcome is 'Append-only: one row a report on a permitted call. The last one that is not running holds.';
comment on column outcome.shard is 'The shard of its call tree: a hash of tenant and root, 0 to 1,023.';
comment on column outcome.tenant_id is 'The tenant.';
comment on column outcome.epoch is 'The epoch of its call tree; the partition.';
comment on column outcome.session_id is 'The session of the call.';
comment on column outcome.permit_seq is 'The seq of the call row whose permit this settles.';
comment on column outcome.seq is 'Its place among the events of its call tree.';
comment on column outcome.root_id is 'The root of its call tree.';
comment on column outcome.call_id is 'The call.';
comment on column outcome.at is 'When it was recorded, by the database''s time.';
comment on column outcome.status is 'What came of it: 0 running (a heartbeat), 1 success, 2 error, 3 cancelled, 4 unknown.';
comment on column outcome.failure is 'What went wrong: 0 timeout, 1 rate_limited, 2 unavailable, 3 network, 4 conflict, 5 auth, 6 permission, 7 not_found, 8 invalid_argument, 9 quota_exhausted, 10 internal, 11 other.';
comment on column outcome.error_signature is 'The error with its variable parts masked.';
comment on column outcome.digest is 'SHA-256 of the result or error with its volatile parts masked.';
comment on column outcome.progress is 'True when it brought something new that was more than another name or number for what the call gave before.';
comment on column outcome.retryable is 'Advice: is a retry worth it?';
comment on column outcome.retry_after_ms is 'Advice: the wait, in milliseconds.';
comment on column outcome.retries_remaining is 'Advice: how many more tries may follow.';
comment on column outcome.p_success is 'Advice: the chance that a retry succeeds, as predicted then.';
comment on column outcome.p_low is 'Lower end of a 90 % interval around the chance.';
comment on column outcome.p_high is 'Upper end of a 90 % interval around the chance.';
comment on column outcome.confidence is 'Evidence behind the chance: 0 low, 1 medium, 2 high.';
comment on column outcome.basis is 'Where the chance came from: 0 prior, 1 kind, 2 tool, 3 cell.';
comment on column outcome.guard is 'What overruled the chance: 1 unsafe, 2 rate_limit_escalation, 3 attempts, 4 retry_budget; null nothing.';
comment on column outcome.lease_until is 'For a heartbeat: until when the lease goes now.';
comment on column outcome.by_lease is 'Nobody reported; the lease ran out.';
comment on column outcome.input_tokens is 'Tokens read by the model, as reported with it.';
comment on column outcome.output_tokens is 'Tokens written by the model, as reported with it.';
comment on column outcome.cache_read_tokens is 'Tokens read from a prompt cache, as reported with it.';
comment on column outcome.cache_write_tokens is 'Tokens written to a prompt cache, as reported with it.';
comment on column outcome.cost_micros is 'Actual cost of call and model, in millionths of a US dollar.';
comment on column outcome.duration_ms is 'How long the call took, in milliseconds, by the caller''s watch.';
comment on column outcome.is_complete is 'Does the answer hold everything there is? Null: nobody said.';
comment on column outcome.total_matches is 'How many matches there are in all. Null: nobody said.';
comment on column outcome.progress_note is 'How far a running call had come.';
comment on column outcome.result is 'The whole answer, when it was given.';
comment on column outcome.result_bytes is 'Size of the whole answer.';
comment on column outcome.error_message is 'The raw error, for people.';
comment on column outcome.follow_up_ok is 'For a follow-up on a failure: it did not fail. Null when it is none, or when nobody can tell (censored).';
comment on column outcome.trials is 'Advice: decayed trials behind the chance, of this tool, kind and wait.';
comment on column outcome.as_of is 'Advice: when they were counted; null before the first.';
comment on column outcome.probe is 'Advice: the estimate said no, and a retry was allowed to learn.';
comment on column outcome.tool_state is 'For a failure: how the tool fared then, this failure included: 0 working, 1 failing for less than a minute, 2 for longer.';
comment on column outcome.failure_share is 'For a failure: the share of the tool''s calls that failed in the last minutes.';
comment on column outcome.failures is 'For a failure: the tool''s failures in a row, this one included, over all sessions.';
comment on column outcome.failing_ms is 'For a failure: how long the tool had been failing, in milliseconds.';
comment on column outcome.sketch is 'What the result looks like: 64 bytes by which results that are nearly the same are known.';
comment on column outcome.kept is 'Later calls may depend on the answer.';
comment on column outcome.marks is 'What loop rules read of a success: shape, numberless and names (eight bytes of a hash each, hexadecimal), named (a few names), says (0 little, 1 no_matches, 2 much, 3 lists), failed.';
comment on column outcome.news is 'True when it brought something new. Of reports before this column it is taken for true: that only lets a call run again.';
comment on column outcome.gist is 'What the stored result says, in a few words, for a model that has forgotten it.';
comment on column outcome.made is 'The names of what the call may have made, where its arguments do not hold them.';
comment on column outcome.error_line is 'The error in one line, without what is redacted: what a model is told of it.';
