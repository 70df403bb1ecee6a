create view coercions as
select
  c.tenant_id,
  c.tool,
  regexp_replace(x.field, '\[\d+\]', '[]', 'g') as field,
  (c.at at time zone 'utc')::date as day,
  count(distinct (c.session_id, c.call_id)) as calls
from call c
cross join lateral jsonb_array_elements_text(c.coerced) as x (field)
where c.coerced is not null
group by 1, 2, 3, 4;
comment on view coercions is 'Arguments that had another type than the tool takes and were read as the right one, by tool, field and UTC day.';
comment on column coercions.tenant_id is 'The tenant.';
comment on column coercions.tool is 'The tool.';
comment on column coercions.field is 'The field, with the places of items left out: items[].sku.';
comment on column coercions.day is 'The UTC day of the judgement.';
comment on column coercions.calls is 'Calls whose value of that field was read as another type.';
