-- Which description should be rewritten?
--
-- Fields that models get wrong, and names that they invent, over the last fourteen days, the most frequent first.
-- How to read it: refused is how often the field was wrong and the model was told so; corrected is the share it mended by
-- itself. A field that is often refused needs a better description or schema; one that is hardly ever corrected needs an
-- example, or is for the user to say. coerced values were read as the right type: give the field the type that
-- models write. An invented name is a tool that models expect: add it, or say in the nearest tool's description that
-- it is the one.
select
  tenant_id,
  tool,
  field,
  r.rule as violated,
  coalesce(r.refusals, 0) as refused,
  round(r.corrected::numeric / r.refusals, 2) as corrected,
  coalesce(c.calls, 0)::bigint as coerced
from callgate.self_corrections r
full join (
  select tenant_id, tool, field, sum(calls) as calls
  from callgate.coercions
  where day > (now() at time zone 'utc')::date - 14
  group by tenant_id, tool, field
) c using (tenant_id, tool, field)
union all
select tenant_id, tool, null, 'no such tool' || coalesce('; told: ' || told, ''), calls, null, 0
from callgate.unknown_tools
where last_at > now() - interval '14 days'
order by refused desc, coerced desc, tool, field;
