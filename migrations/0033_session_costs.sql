create view session_costs as
select
  x.tenant_id,
  x.root_id,
  x.session_id,
  count(*) filter (where x.is_new) as calls,
  count(*) filter (where x.is_permit) as permitted,
  sum(x.tokens)::bigint as tokens,
  sum(x.cost_micros)::bigint as cost_micros,
  min(x.at) as first_at,
  max(x.at) as last_at
from (
  select tenant_id, root_id, session_id, at, round = 1 as is_new, attempt is not null as is_permit,
    coalesce(input_tokens, 0) + coalesce(output_tokens, 0) + coalesce(cache_read_tokens, 0)
      + coalesce(cache_write_tokens, 0) as tokens,
    coalesce(cost_micros, 0) as cost_micros
  from call
  union all
  select tenant_id, root_id, session_id, at, false, false,
    coalesce(input_tokens, 0) + coalesce(output_tokens, 0) + coalesce(cache_read_tokens, 0)
      + coalesce(cache_write_tokens, 0),
    coalesce(cost_micros, 0)
  from outcome
) x
group by 1, 2, 3;
comment on view session_costs is 'What each session has spent, of its own: its sub-agents have rows of their own under the same root.';
comment on column session_costs.tenant_id is 'The tenant.';
comment on column session_costs.root_id is 'The root of its call tree.';
comment on column session_costs.session_id is 'The session.';
comment on column session_costs.calls is 'Calls judged or reported, each counted once.';
comment on column session_costs.permitted is 'Permits given to them.';
comment on column session_costs.tokens is 'Tokens of the model, of every kind.';
comment on column session_costs.cost_micros is 'Cost of calls and model, in millionths of a US dollar.';
comment on column session_costs.first_at is 'Its first event.';
comment on column session_costs.last_at is 'Its last event.';
