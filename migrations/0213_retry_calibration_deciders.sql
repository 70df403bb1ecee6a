-- As 0032 has it, by who decided to retry as well: their waits differ.
create or replace view retry_calibration as
select
  x.tenant_id,
  x.chance,
  x.probe,
  least(floor(x.p * 10)::integer + 1, 10) as decile,
  count(*) as trials,
  avg(x.p) as predicted,
  avg(x.follow_up_ok::integer)::float8 as observed,
  x.tool,
  (array['client', 'model', 'person'])[x.decided_by + 1] as decided_by
from (
  select c.tenant_id, c.tool, s.chance, c.probe, c.decided_by, s.p, o.follow_up_ok
  from outcome o
  join call c on c.shard = o.shard and c.tenant_id = o.tenant_id and c.epoch = o.epoch
    and c.session_id = o.session_id and c.seq = o.permit_seq
  cross join lateral (values ('told', c.p_predicted), ('at_wait', c.p_at_wait)) s (chance, p)
  where c.retry_kind = 0 and o.follow_up_ok is not null
) x
group by 1, 2, 3, 4, x.tool, x.decided_by;
comment on column retry_calibration.decided_by is 'Who decided to retry: client, model or person; null for retries of an earlier build.';
