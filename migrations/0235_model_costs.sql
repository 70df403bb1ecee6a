create view model_costs as
select
  x.tenant_id,
  x.day,
  x.model,
  x.input_tokens,
  x.output_tokens,
  x.cache_read_tokens,
  x.cache_write_tokens,
  round((x.input_tokens::numeric * p.input_micros + x.output_tokens::numeric * p.output_micros
    + x.cache_read_tokens::numeric * p.cache_read_micros + x.cache_write_tokens::numeric * p.cache_write_micros)
    / 1000000)::bigint as cost_micros,
  round((x.cache_read_tokens::numeric * (p.input_micros - p.cache_read_micros)
    + x.cache_write_tokens::numeric * (p.input_micros - p.cache_write_micros)) / 1000000)::bigint as cache_saved_micros,
  x.reported_micros,
  p.valid_from as price_from
from (
  select tenant_id, (at at time zone 'utc')::date as day, model, sum(input_tokens)::bigint as input_tokens,
    sum(output_tokens)::bigint as output_tokens, sum(cache_read_tokens)::bigint as cache_read_tokens,
    sum(cache_write_tokens)::bigint as cache_write_tokens, sum(cost_micros)::bigint as reported_micros
  from (
    select tenant_id, at, model, coalesce(input_tokens, 0) as input_tokens, coalesce(output_tokens, 0) as output_tokens,
      coalesce(cache_read_tokens, 0) as cache_read_tokens, coalesce(cache_write_tokens, 0) as cache_write_tokens,
      coalesce(cost_micros, 0) as cost_micros
    from call
    union all
    select tenant_id, at, model, coalesce(input_tokens, 0), coalesce(output_tokens, 0), coalesce(cache_read_tokens, 0),
      coalesce(cache_write_tokens, 0), coalesce(cost_micros, 0)
    from outcome
  ) u
  where cost_micros + input_tokens + output_tokens + cache_read_tokens + cache_write_tokens > 0
  group by 1, 2, 3
) x
left join (
  select *, lead(valid_from, 1, 'infinity') over (partition by model order by valid_from) as valid_before from model_price
) p on p.model = x.model and x.day >= p.valid_from and x.day < p.valid_before;
comment on view model_costs is 'Usage by model and UTC day, with all reports, heartbeats included, at the prices of that day.';
comment on column model_costs.tenant_id is 'The tenant.';
comment on column model_costs.day is 'The UTC day of the judgment or report with which the usage was sent.';
comment on column model_costs.model is 'The model; null for usage that names none.';
comment on column model_costs.input_tokens is 'Tokens read by the model.';
comment on column model_costs.output_tokens is 'Tokens written by the model.';
comment on column model_costs.cache_read_tokens is 'Tokens read from a prompt cache.';
comment on column model_costs.cache_write_tokens is 'Tokens written to a prompt cache.';
comment on column model_costs.cost_micros is 'Cost of these tokens at the price of that day, in millionths of a US dollar; null without a price.';
comment on column model_costs.cache_saved_micros is 'The additional cost if the cached tokens had been read without a cache, in millionths of a US dollar; below 0 where writing to it cost more.';
comment on column model_costs.reported_micros is 'Cost as its callers reported it, of calls and model, in millionths of a US dollar.';
comment on column model_costs.price_from is 'The first day of the price that was applied; null without a price.';
do $$
begin
  if exists (select from pg_roles where rolname = 'callgate_analyst') then
    grant select on model_costs to callgate_analyst;
  end if;
end
$$;
