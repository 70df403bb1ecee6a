-- What do the rules refuse, and what would they?
--
-- Judgements of the last seven days by rule: refused, let through in shadow mode only, and let through with a warning.
-- How to read it: share is of all judgements of the tenant. A rule in shadow whose would_refuse is small and right may be
-- enforced; one that refuses much deserves a look at its calls in callgate.tool_call before anything else.
select
  tenant_id,
  rule,
  coalesce(sum(calls) filter (where decision <> 'ALLOW'), 0)::bigint as refused,
  coalesce(sum(calls) filter (where decision = 'ALLOW' and would <> 'ALLOW'), 0)::bigint as would_refuse,
  coalesce(sum(calls) filter (where would = 'ALLOW'), 0)::bigint as warned,
  round(sum(calls) / sum(sum(calls)) over (partition by tenant_id), 4) as share
from callgate.decisions_by_rule
where rule is not null and day > (now() at time zone 'utc')::date - 7
group by tenant_id, rule
order by tenant_id, refused desc, would_refuse desc, rule;
