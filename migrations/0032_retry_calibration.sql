create view retry_calibration as
select
  x.tenant_id,
  x.chance,
  x.probe,
  least(floor(x.p * 10)::integer + 1, 10) as decile,
  count(*) as trials,
  avg(x.p) as predicted,
  avg(x.follow_up_ok::integer)::float8 as observed,
  x.tool
from (
  select c.tenant_id, c.tool, s.chance, c.probe, s.p, o.follow_up_ok
  from outcome o
  join call c on c.shard = o.shard and c.tenant_id = o.tenant_id and c.epoch = o.epoch
    and c.session_id = o.session_id and c.seq = o.permit_seq
  cross join lateral (values ('told', c.p_predicted), ('at_wait', c.p_at_wait)) s (chance, p)
  where c.retry_kind = 0 and o.follow_up_ok is not null
) x
group by 1, 2, 3, 4, x.tool;
comment on view retry_calibration is 'Do the chances come true? Retries with the same arguments of which it is known what they came to, by the chance that was predicted for them.';
comment on column retry_calibration.tenant_id is 'The tenant.';
comment on column retry_calibration.chance is 'Which chance: told (with the failure, for the advised wait) or at_wait (for the wait that really was).';
comment on column retry_calibration.probe is 'True for retries that were advised against the estimate, to learn.';
comment on column retry_calibration.decile is 'The tenth that the chance lies in: 1 below 0.1, 10 from 0.9.';
comment on column retry_calibration.trials is 'Retries.';
comment on column retry_calibration.predicted is 'The mean of their chances, 0 to 1.';
comment on column retry_calibration.observed is 'The share of them that did not fail, 0 to 1.';
comment on column retry_calibration.tool is 'The tool.';
