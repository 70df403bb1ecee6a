create table call (
  shard smallint not null,
  tenant_id bigint not null,
  epoch date not null,
  session_id text collate "C" not null,
  seq bigint not null,
  root_id text collate "C" not null,
  call_id text collate "C" not null,
  round integer not null,
  at timestamptz not null,
  run_id text,
  run_from bigint not null,
  batch bigint not null,
  agent_id text,
  tool text not null,
  fingerprint bytea not null,
  args_digest bytea not null,
  effect smallint not null,
  resource text,
  once boolean not null,
  idempotent boolean not null,
  decision smallint not null,
  would smallint not null,
  rule text,
  reason text,
  level smallint,
  findings jsonb,
  attempt integer,
  occurrence bigint,
  idempotency_key text,
  lease_until timestamptz,
  reserved_micros bigint,
  approval_id text,
  approval_expires_at timestamptz,
  input_tokens bigint,
  output_tokens bigint,
  cache_read_tokens bigint,
  cache_write_tokens bigint,
  cost_micros bigint,
  observed boolean not null,
  policy_version text not null,
  arguments text,
  justification text,
  retry_of bigint,
  retry_kind smallint,
  retry_failure smallint,
  retry_attempt integer,
  waited_ms bigint,
  tool_state smallint,
  p_predicted double precision,
  retryable_said boolean,
  probe boolean,
  p_slow double precision,
  p_at_wait double precision,
  features real[],
  uses jsonb,
  terminal boolean not null default false,
  share smallint not null default 0,
  coerced jsonb,
  self_corrections jsonb,
  key_honoured boolean not null default false,
  repeatable boolean not null default false,
  resumes boolean not null default false,
  primary key (shard, tenant_id, epoch, session_id, seq),
  unique (shard, tenant_id, epoch, session_id, call_id, round)
) partition by range (epoch);
comment on table call is 'Append-only: one row a judgement. A call_id that is judged again has another row with the next round.';
comment on column call.shard is 'The shard of its call tree: a hash of tenant and root, 0 to 1,023.';
comment on column call.tenant_id is 'The tenant.';
comment on column call.epoch is 'The epoch of its call tree; the partition.';
comment on column call.session_id is 'The session that asked.';
comment on column call.seq is 'Its place among the events of its call tree.';
comment on column call.root_id is 'The root of its call tree.';
comment on column call.call_id is 'The call, as its caller names it.';
comment on column call.round is 'The n-th judgement of this call_id, from 1.';
comment on column call.at is 'When it was judged, by the database''s time.';
comment on column call.run_id is 'The run of the session; null when runs are not named.';
comment on column call.run_from is 'The seq of the first event of that run''s stretch.';
comment on column call.batch is 'The seq of the first call of the same model turn.';
comment on column call.agent_id is 'The agent that asked.';
comment on column call.tool is 'The tool.';
comment on column call.fingerprint is 'SHA-256 of tool and canonical arguments, by which repetitions are known.';
comment on column call.args_digest is 'SHA-256 of tool and all arguments as they execute.';
comment on column call.effect is 'What it does to the world: 0 unknown, 1 read, 2 write, 3 poll, 4 check.';
comment on column call.resource is 'What it touches; null is anything.';
comment on column call.once is 'A write whose repetition harms.';
comment on column call.idempotent is 'A write whose repetition is harmless.';
comment on column call.decision is 'What held: 0 ALLOW, 1 ASK, 2 WAIT, 3 REUSE, 4 DENY, 5 STOP.';
comment on column call.would is 'What the policy would have decided; differs from decision in shadow mode only. Codes as there.';
comment on column call.rule is 'The rule whose finding decided.';
comment on column call.reason is 'The reason of that finding.';
comment on column call.level is 'The highest level of a loop among the findings: 1 warning, 2 critical, 3 break.';
comment on column call.findings is 'Everything the rules had to say.';
comment on column call.attempt is 'The n-th attempt of its occurrence; null when it was not permitted.';
comment on column call.occurrence is 'The intended execution that the attempt belongs to.';
comment on column call.idempotency_key is 'The key sent along with the execution.';
comment on column call.lease_until is 'When the outcome counts as unknown unless recorded; heartbeats in outcome extend it.';
comment on column call.reserved_micros is 'Cost reserved with the permit, in millionths of a US dollar.';
comment on column call.approval_id is 'The question to a person, for ASK.';
comment on column call.approval_expires_at is 'When that question expires to a denial.';
comment on column call.input_tokens is 'Tokens read by the model since the last call.';
comment on column call.output_tokens is 'Tokens written by the model since the last call.';
comment on column call.cache_read_tokens is 'Tokens read from a prompt cache since the last call.';
comment on column call.cache_write_tokens is 'Tokens written to a prompt cache since the last call.';
comment on column call.cost_micros is 'Model cost since the last call, in millionths of a US dollar.';
comment on column call.observed is 'The call was only reported, never asked for.';
comment on column call.policy_version is 'The policy that judged, by hash.';
comment on column call.arguments is 'The arguments in canonical JSON.';
comment on column call.justification is 'Why the agent wanted it.';
comment on column call.retry_of is 'The failed call of its session that this one follows up on, by the seq of its permit; null when it follows up on none.';
comment on column call.retry_kind is 'How: 0 same arguments (a retry), 1 near, 2 changed (corrections).';
comment on column call.retry_failure is 'What had gone wrong; codes as in outcome.failure.';
comment on column call.retry_attempt is 'Which attempt had failed.';
comment on column call.waited_ms is 'From the failure''s report to this permit, in milliseconds: measured, not advised.';
comment on column call.tool_state is 'How the tool fared when the failure was reported, over all sessions: 0 working, 1 failing for less than a minute, 2 for longer.';
comment on column call.p_predicted is 'The chance that was told with the failure.';
comment on column call.retryable_said is 'Whether a retry was advised with the failure.';
comment on column call.probe is 'It was advised against the estimate, to learn.';
comment on column call.p_slow is 'The chance for the wait that really was, before the recent level.';
comment on column call.p_at_wait is 'The chance for the wait that really was.';
comment on column call.features is 'What the logistic layer looks at: ln(1+wait s), attempt, ln(1+same errors in the session), ln(1+calls of the tool in a row), ln(1+age of the session s), previous call did not fail, share of the tool''s calls that failed lately, ln(1+failures in a row), ln(1+failing for s), ln((wait+1)/(failing for+1)).';
comment on column call.uses is 'The tiers and grants that its permit used, as it left them: key, opened_ms, used, paced_ms.';
comment on column call.terminal is 'A way out, never blocked nor charged.';
comment on column call.share is 'Who shares what it has done: 0 its call tree, 1 all sessions of its agent, 2 the tenant.';
comment on column call.coerced is 'Fields whose values had another type than the tool takes and were read as the right one.';
comment on column call.self_corrections is 'What this call shows of the tool''s last refusal for its arguments: field, rule, and whether it is right now. Only what the model was told to correct by itself.';
comment on column call.key_honoured is 'A write whose provider honours the idempotency key.';
comment on column call.repeatable is 'A write whose identical repetition is meant.';
comment on column call.resumes is 'The session has no runs and was idle before: loops are weighed from here on.';
