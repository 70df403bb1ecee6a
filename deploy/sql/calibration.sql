-- Do the chances that agents are told come true?
--
-- Retries by the tenth of the chance that was told, beside the share that did not fail, with two standard errors of that
-- share. Probes are left out: they are in probes.sql.
-- How to read it: gap is observed minus predicted. A gap beyond the error, in tenths with many trials, means that the
-- estimate is wrong there; below 0 it promises too much. Add `and tool = '…'` to look at one tool.
select
  tenant_id,
  chance,
  decile,
  trials,
  round(predicted::numeric, 3) as predicted,
  round(observed::numeric, 3) as observed,
  round((observed - predicted)::numeric, 3) as gap,
  round((2 * sqrt(predicted * (1 - predicted) / trials))::numeric, 3) as error
from (
  select tenant_id, chance, decile, sum(trials)::bigint as trials, sum(predicted * trials) / sum(trials) as predicted,
    sum(observed * trials) / sum(trials) as observed
  from callgate.retry_calibration
  where not probe
  group by tenant_id, chance, decile
) x
order by tenant_id, chance desc, decile;
