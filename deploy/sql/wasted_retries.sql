-- Which tool's retries are wasted, and what do they cost?
--
-- Retries of the last seven days with the same arguments that failed again, by tool and kind of failure.
-- How to read it: wasted_usd and lost_s (waits included) are what the futile ones took. Where against_advice is most of
-- wasted, callers retry by themselves: mend the client. Where it is little, the estimate is still learning, or the tool
-- has just broken. A wasted_share near 1 is a failure to be told as final (`retryable: false` in the policy).
select
  tenant_id,
  tool,
  failure,
  sum(retries)::bigint as retries,
  sum(wasted)::bigint as wasted,
  round(sum(wasted) / sum(retries), 2) as wasted_share,
  sum(against_advice)::bigint as against_advice,
  round(sum(cost_micros) / 1e6, 4) as wasted_usd,
  sum(tokens)::bigint as tokens,
  round(sum(lost_ms) / 1e3, 1) as lost_s
from callgate.wasted_retries
where day > (now() at time zone 'utc')::date - 7
group by tenant_id, tool, failure
having sum(wasted) > 0
order by wasted_usd desc, lost_s desc, wasted desc, tool, failure;
