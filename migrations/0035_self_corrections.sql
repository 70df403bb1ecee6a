create view self_corrections as
select c.tenant_id, c.tool, x.field, x.rule, count(*) as refusals, count(*) filter (where x.ok) as corrected
from call c
cross join lateral jsonb_to_recordset(c.self_corrections) as x (field text, rule text, ok boolean)
where c.self_corrections is not null and c.at > now() - interval '14 days'
group by c.tenant_id, c.tool, x.field, x.rule;
comment on view self_corrections is 'How often models correct themselves after a refusal for their arguments, over the last 14 days. A refusal counts when the tool was called again within ten minutes and five calls.';
comment on column self_corrections.tenant_id is 'The tenant.';
comment on column self_corrections.tool is 'The tool.';
comment on column self_corrections.field is 'The field that was wrong, with the places of items left out: items[].sku.';
comment on column self_corrections.rule is 'What was violated: a JSON Schema keyword, unknown_field or condition.';
comment on column self_corrections.refusals is 'Refusals that told the model to correct the field by itself, and were followed by another call.';
comment on column self_corrections.corrected is 'Those after which the field was right.';
