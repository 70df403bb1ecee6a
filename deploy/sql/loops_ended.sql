-- How did loops end?
--
-- Of each loop of the last seven days that was refused (a detector, a session, a run): what the session did after the
-- last refusal of it.
-- How to read it: "another call" is what a refusal is for, the agent changed what it does; "the same call, let through"
-- came later, when the detector had no more against it; "asked a person" and "refused otherwise" are what the next call
-- met. Where no call came, the agent stopped: it answered, gave up or broke off, which the plane cannot tell apart;
-- within ten minutes of the refusal nobody knows yet. Loops that end as warnings are in loops.sql alone.
with refused as (
  select tenant_id, session_id, run_from, rule, max(judged_at) as at, count(*) as refusals,
    (array_agg(call_id order by judged_at desc))[1] as call_id
  from callgate.findings
  where is_loop and enforced and decision in ('DENY', 'STOP') and judged_at > now() - interval '7 days'
  group by tenant_id, session_id, run_from, rule
),
ended as (
  select r.tenant_id, r.rule, r.refusals, n.judged_at - r.at as pause,
    case
      when exists (
        select from callgate.halts h
        where h.tenant_id = r.tenant_id and h.kind = 'session' and h.name = r.session_id and h.halted_at > r.at
          and h.halted_at < coalesce(n.judged_at, 'infinity')
      ) then 'halted by a person'
      when n.decision is null and r.at > now() - interval '10 minutes' then 'not known yet'
      when n.decision is null then 'stopped'
      when n.decision = 'ASK' then 'asked a person'
      when n.decision in ('DENY', 'STOP') then 'refused otherwise'
      when n.tool = l.tool and n.arguments = l.arguments then 'the same call, let through'
      else 'another call'
    end as ended
  from refused r
  left join callgate.tool_call l
    on l.tenant_id = r.tenant_id and l.session_id = r.session_id and l.call_id = r.call_id
  left join lateral (
    select c.decision, c.tool, c.arguments, c.judged_at from callgate.tool_call c
    where c.tenant_id = r.tenant_id and c.session_id = r.session_id and c.judged_at > r.at and not c.observed
    order by c.judged_at
    limit 1
  ) n on true
)
select
  tenant_id,
  rule,
  ended,
  count(*) as loops,
  round(avg(refusals), 1) as refusals,
  percentile_disc(0.5) within group (order by pause) as pause
from ended
group by tenant_id, rule, ended
order by tenant_id, rule, loops desc, ended;
