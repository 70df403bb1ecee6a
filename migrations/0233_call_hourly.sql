create table call_hourly (
  tenant_id bigint not null,
  hour timestamptz not null,
  tool text collate "C" not null,
  agent_id text collate "C",
  model text collate "C",
  decision text not null,
  rule text,
  reason text,
  outcome text,
  failure text,
  cause text,
  judgments integer not null,
  calls integer not null,
  saved_calls integer not null,
  saved_micros bigint not null,
  cost_micros bigint not null,
  input_tokens bigint not null,
  output_tokens bigint not null,
  cache_read_tokens bigint not null,
  cache_write_tokens bigint not null,
  duration_ms bigint,
  durations integer not null
);
-- Not unique: most names may be null.
create index call_hourly_hour on call_hourly (tenant_id, hour);
comment on table call_hourly is 'The view calls, counted by hour of the judgment. One replica counts an hour once it is over for 15 minutes, and again after a late outcome or a forgotten call.';
comment on column call_hourly.tenant_id is 'The tenant.';
comment on column call_hourly.hour is 'The beginning of the UTC hour in which the calls were judged.';
comment on column call_hourly.tool is 'The tool.';
comment on column call_hourly.agent_id is 'The agent; null when it is not named.';
comment on column call_hourly.model is 'The model that used the tokens; null when it is not named.';
comment on column call_hourly.decision is 'The decision that held: ALLOW, ASK, WAIT, REUSE, DENY, STOP.';
comment on column call_hourly.rule is 'The rule whose finding decided; null without a finding.';
comment on column call_hourly.reason is 'The reason of that finding.';
comment on column call_hourly.outcome is 'The outcome: success, error, cancelled, unknown. Null without a permit, and before a report.';
comment on column call_hourly.failure is 'The failure kind of an error or unknown outcome.';
comment on column call_hourly.cause is 'The cause of a refusal or failure: model, tool, policy.';
comment on column call_hourly.judgments is 'Judgments.';
comment on column call_hourly.calls is 'Calls, each counted at its first judgment.';
comment on column call_hourly.saved_calls is 'Executions saved by refusals.';
comment on column call_hourly.saved_micros is 'Their expected cost, in millionths of a US dollar.';
comment on column call_hourly.cost_micros is 'Cost of calls and model, in millionths of a US dollar.';
comment on column call_hourly.input_tokens is 'Tokens read by the model.';
comment on column call_hourly.output_tokens is 'Tokens written by the model.';
comment on column call_hourly.cache_read_tokens is 'Tokens read from a prompt cache.';
comment on column call_hourly.cache_write_tokens is 'Tokens written to a prompt cache.';
comment on column call_hourly.duration_ms is 'Sum of the reported durations, in milliseconds; null without one.';
comment on column call_hourly.durations is 'Number of reported durations.';
alter table tenant add column calls_counted_before timestamptz, add column outcomes_counted_at timestamptz;
comment on column tenant.calls_counted_before is 'The beginning of the first hour that call_hourly does not have yet.';
comment on column tenant.outcomes_counted_at is 'Outcomes up to this time are in call_hourly.';
alter table forgotten add column hours timestamptz[];
comment on column forgotten.hours is 'Hours of the deleted calls, which call_hourly has to count again; null once it has. The row stays until then.';
create view calls_hourly as
select h.* from call_hourly h
join tenant t on t.tenant_id = h.tenant_id and h.hour >= coalesce(t.calls_gone_before, '-infinity');
comment on view calls_hourly is 'The view calls by hour, in the hours that are counted and of which no call is past its retention period. Exact as of the last count, which follows each hour by 15 minutes.';
comment on column calls_hourly.tenant_id is 'The tenant.';
comment on column calls_hourly.hour is 'The beginning of the UTC hour in which the calls were judged.';
comment on column calls_hourly.tool is 'The tool.';
comment on column calls_hourly.agent_id is 'The agent; null when it is not named.';
comment on column calls_hourly.model is 'The model that used the tokens; null when it is not named.';
comment on column calls_hourly.decision is 'The decision that held: ALLOW, ASK, WAIT, REUSE, DENY, STOP.';
comment on column calls_hourly.rule is 'The rule whose finding decided; null without a finding.';
comment on column calls_hourly.reason is 'The reason of that finding.';
comment on column calls_hourly.outcome is 'The outcome: success, error, cancelled, unknown. Null without a permit, and before a report.';
comment on column calls_hourly.failure is 'The failure kind of an error or unknown outcome.';
comment on column calls_hourly.cause is 'The cause of a refusal or failure: model, tool, policy.';
comment on column calls_hourly.judgments is 'Judgments.';
comment on column calls_hourly.calls is 'Calls, each counted at its first judgment.';
comment on column calls_hourly.saved_calls is 'Executions saved by refusals.';
comment on column calls_hourly.saved_micros is 'Their expected cost, in millionths of a US dollar.';
comment on column calls_hourly.cost_micros is 'Cost of calls and model, in millionths of a US dollar.';
comment on column calls_hourly.input_tokens is 'Tokens read by the model.';
comment on column calls_hourly.output_tokens is 'Tokens written by the model.';
comment on column calls_hourly.cache_read_tokens is 'Tokens read from a prompt cache.';
comment on column calls_hourly.cache_write_tokens is 'Tokens written to a prompt cache.';
comment on column calls_hourly.duration_ms is 'Sum of the reported durations, in milliseconds; null without one.';
comment on column calls_hourly.durations is 'Number of reported durations.';
do $$
begin
  if exists (select from pg_roles where rolname = 'callgate_analyst') then
    grant select on calls_hourly to callgate_analyst;
  end if;
end
$$;
