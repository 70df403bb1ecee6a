-- What do the rules refuse, and what would they?
--
-- Judgements of the last seven days by rule: refused, and in shadow mode let through that would have been refused.
-- How to read it: share is of all judgements of the tenant. A rule in shadow whose would_refuse is small and right may be
-- enforced; one that refuses much deserves a look at its calls in callgate.tool_call before anything else.
select
  tenant_id,
  rule,
  sum(calls) filter (where decision <> 'ALLOW')::bigint as refused,
  sum(calls) filter (where decision = 'ALLOW' and would <> 'ALLOW')::bigint as would_refuse,
  sum(calls) filter (where would = 'ALLOW')::bigint as warned,
  round(sum(calls) / sum(sum(calls)) over (partition by tenant_id), 4) as share
from callgate.decisions_by_rule
where rule is not null and day > (now() at time zone 'utc')::date - 7
group by tenant_id, rule
order by tenant_id, refused desc nulls last, would_refuse desc nulls last, rule;
