-- Which sessions went round in circles?
--
-- Sessions of the last seven days that a loop detector warned of, stopped or broke: by detector, and how far it came.
-- How to read it: every finding counts at its own level, whether it decided or a stricter one did. Warned calls were let
-- through with a hint, critical ones refused, and broken ones refused for the rest of their run. Sessions whose loops end
-- as warnings read the hint; those that reach a break do not.
select
  tenant_id,
  session_id,
  rule,
  min(tool) as tool,
  count(distinct tool) as tools,
  count(*) filter (where level = 'warning') as warned,
  count(*) filter (where level = 'critical') as critical,
  count(*) filter (where level = 'break') as broken,
  max(judged_at) as last_at
from callgate.findings
where is_loop and judged_at > now() - interval '7 days'
group by tenant_id, session_id, rule
order by broken desc, critical desc, warned desc, last_at desc
limit 50;
