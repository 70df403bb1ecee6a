create view decisions_by_rule as
select
  tenant_id,
  (at at time zone 'utc')::date as day,
  rule,
  (array['ALLOW', 'ASK', 'WAIT', 'REUSE', 'DENY', 'STOP'])[decision + 1] as decision,
  (array['ALLOW', 'ASK', 'WAIT', 'REUSE', 'DENY', 'STOP'])[would + 1] as would,
  count(*) as calls,
  (sum(count(*) filter (where decision = would)) over of_rule / sum(count(*)) over of_rule)::float8 as enforced_share
from call
where not observed
group by tenant_id, (at at time zone 'utc')::date, rule, decision, would
window of_rule as (partition by tenant_id, (at at time zone 'utc')::date, rule);
comment on view decisions_by_rule is 'What the rules decided, by UTC day. A call that is asked for again is judged again, and counts again; calls that were only reported do not count.';
comment on column decisions_by_rule.tenant_id is 'The tenant.';
comment on column decisions_by_rule.day is 'The UTC day of the judgement.';
comment on column decisions_by_rule.rule is 'The rule whose finding decided. Null: allowed, and no rule had anything to say.';
comment on column decisions_by_rule.decision is 'What held: ALLOW, ASK, WAIT, REUSE, DENY, STOP.';
comment on column decisions_by_rule.would is 'What the policy would have decided; differs from decision in shadow mode only.';
comment on column decisions_by_rule.calls is 'Judgements.';
comment on column decisions_by_rule.enforced_share is 'Of all judgements of this rule on this day: the share that held as the policy decided, 0 to 1. Below 1 some were in shadow.';
