-- What do retries made against the estimate show?
--
-- Retries advised against the estimate (probes), beside all others, over all tenths of the chance told.
-- How to read it: probes are drawn at random, so they are the fair test of what the estimate suppresses. When they succeed
-- much more often than predicted, retries are being suppressed that would have worked.
select
  tenant_id,
  case when probe then 'probe' else 'advised or own' end as retries,
  sum(trials) as trials,
  round((sum(predicted * trials) / sum(trials))::numeric, 3) as predicted,
  round((sum(observed * trials) / sum(trials))::numeric, 3) as observed
from callgate.retry_calibration
where chance = 'told'
group by tenant_id, probe
order by tenant_id, probe;
