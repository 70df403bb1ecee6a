-- The estimate of the server, in SQL: decayed counts, drawn from the cell of one tool towards the curve of an average
-- one. Sums are windows over one set of rows and not joins, so that the plan is the same whatever is known of the tables.
create view retry_profiles as
with
  param as (
    select
      max(value) filter (where name = 'half_life_s') as half_life_s,
      max(value) filter (where name = 'recent_half_life_s') as recent_half_life_s,
      max(value) filter (where name = 'half_lives_kept') as half_lives_kept,
      max(value) filter (where name = 'm_kind') as m_kind,
      max(value) filter (where name = 'm_curve') as m_curve,
      max(value) filter (where name = 'm_tool') as m_tool,
      max(value) filter (where name = 'm_cell') as m_cell,
      max(value) filter (where name = 'm_recent') as m_recent,
      max(value) filter (where name = 'logit_edge') as edge,
      max(value) filter (where name = 'expected_edge') as expected_edge,
      max(value) filter (where name = 'recent_edge') as recent_edge,
      max(value) filter (where name = 'recent_min') as recent_min,
      max(value) filter (where name = 'interval_z') as z,
      max(value) filter (where name = 'trials_medium') as trials_medium,
      max(value) filter (where name = 'trials_high') as trials_high
    from retry_param
  ),
  kind as (
    select (f.place - 1)::smallint as failure, f.name, r.value as prior
    from unnest(array['timeout', 'rate_limited', 'unavailable', 'network', 'conflict', 'auth', 'permission',
      'not_found', 'invalid_argument', 'quota_exhausted', 'internal', 'other']) with ordinality as f (name, place)
    join retry_param r on r.name = 'prior_' || f.name
  ),
  bucket as (
    select right(name, 1)::smallint as wait, value as wait_s from retry_param where name like 'wait\_s\__'
  ),
  -- An hour is dated at its middle.
  counted as (
    select h.tenant_id, h.tool, h.failure, h.wait, h.attempt, h.tool_state,
      h.trials * d.weight as n, h.successes * d.weight as k
    from retry_hourly h
    cross join param p
    cross join lateral (
      select power(0.5, greatest(0, extract(epoch from now() - h.hour)::float8 - 1800) / p.half_life_s) as weight
    ) d
    where h.kind = 0 and h.hour >= now() - make_interval(secs => p.half_lives_kept * p.half_life_s)
  ),
  recent as (
    select r.tenant_id, r.tool, r.failure, sum(r.trials * d.weight) as n, sum(r.successes * d.weight) as k,
      sum(r.expected * d.weight) as expected
    from retry_recent r
    cross join param p
    cross join lateral (
      select power(0.5, greatest(0, extract(epoch from now() - r.bucket)::float8 - 300) / p.recent_half_life_s) as weight
    ) d
    where r.bucket >= now() - make_interval(secs => p.half_lives_kept * p.recent_half_life_s)
    group by 1, 2, 3
  ),
  -- How the last hours differ from before, in log odds.
  lately as (
    select r.tenant_id, r.tool, r.failure, ln(b.share / (1 - b.share)) - ln(a.e / (1 - a.e)) as lately
    from recent r
    cross join param p
    cross join lateral (
      select least(greatest(r.expected / r.n, p.recent_edge), 1 - p.recent_edge) as e
    ) a
    cross join lateral (
      select least(greatest((r.k + p.m_recent * a.e) / (r.n + p.m_recent), p.edge), 1 - p.edge) as share
    ) b
    where r.n > p.recent_min
  ),
  profile as (
    select c.tenant_id, c.tool, c.failure, coalesce(l.lately, 0) as lately
    from (select distinct tenant_id, tool, failure from counted) c
    left join lately l on l.tenant_id = c.tenant_id and l.tool = c.tool and l.failure = c.failure
  ),
  -- Every cell of every profile: those that nobody has seen count nothing.
  cell as (
    select x.tenant_id, x.tool, x.failure, x.wait, x.attempt, x.tool_state, sum(x.n) as n, sum(x.k) as k,
      max(x.lately) as lately
    from (
      select tenant_id, tool, failure, wait, attempt, tool_state, n, k, null::float8 as lately from counted
      union all
      select t.tenant_id, t.tool, t.failure, b.wait, a.attempt::smallint, s.tool_state::smallint, 0, 0, t.lately
      from profile t
      cross join bucket b
      cross join generate_series(1, 3) as a (attempt)
      cross join generate_series(0, 2) as s (tool_state)
    ) x
    group by 1, 2, 3, 4, 5, 6
  ),
  summed as (
    select c.*,
      sum(c.n) over of_kind as kind_n, sum(c.k) over of_kind as kind_k,
      sum(c.n) over of_kind_wait as kind_wait_n, sum(c.k) over of_kind_wait as kind_wait_k,
      sum(c.n) over of_kind_cell as kind_cell_n, sum(c.k) over of_kind_cell as kind_cell_k,
      sum(c.n) over of_tool as tool_n, sum(c.k) over of_tool as tool_k,
      sum(c.n) over of_tool_wait as wait_n, sum(c.k) over of_tool_wait as wait_k
    from cell c
    window
      of_kind as (partition by c.tenant_id, c.failure),
      of_kind_wait as (partition by c.tenant_id, c.failure, c.wait),
      of_kind_cell as (partition by c.tenant_id, c.failure, c.wait, c.attempt, c.tool_state),
      of_tool as (partition by c.tenant_id, c.failure, c.tool),
      of_tool_wait as (partition by c.tenant_id, c.failure, c.tool, c.wait)
  ),
  -- How an average tool fares in each cell (curve), and would have fared on this tool's mix of cells (average).
  curved as (
    select s.*, f.name as failure_name, g2.curve, sum(s.n * g2.curve) over of_tool / s.tool_n as average
    from summed s
    join kind f on f.failure = s.failure
    cross join param p
    cross join lateral (select (s.kind_k + p.m_kind * f.prior) / (s.kind_n + p.m_kind) as p) g0
    cross join lateral (select (s.kind_wait_k + p.m_curve * g0.p) / (s.kind_wait_n + p.m_curve) as p) g1
    cross join lateral (select (s.kind_cell_k + p.m_curve * g1.p) / (s.kind_cell_n + p.m_curve) as curve) g2
    window of_tool as (partition by s.tenant_id, s.failure, s.tool)
  ),
  estimated as (
    select c.*, p3.slow, 1 / (1 + exp(-ln(l.slow / (1 - l.slow)) - c.lately)) as p
    from curved c
    cross join param p
    cross join lateral (
      select
        least(greatest(c.average, p.expected_edge), 1 - p.expected_edge) as average,
        least(greatest(c.curve, p.edge), 1 - p.edge) as curve
    ) e
    cross join lateral (
      select least(greatest((c.tool_k + p.m_tool * e.average) / (c.tool_n + p.m_tool), p.edge), 1 - p.edge) as own
    ) t
    cross join lateral (
      select ln(t.own / (1 - t.own)) - ln(e.average / (1 - e.average)) as shift
    ) s
    cross join lateral (select 1 / (1 + exp(-ln(e.curve / (1 - e.curve)) - s.shift)) as p) p1
    cross join lateral (select (c.wait_k + p.m_cell * p1.p) / (c.wait_n + p.m_cell) as p) p2
    cross join lateral (select (c.k + p.m_cell * p2.p) / (c.n + p.m_cell) as slow) p3
    cross join lateral (select least(greatest(p3.slow, p.edge), 1 - p.edge) as slow) l
  )
select
  e.tenant_id,
  e.tool,
  e.failure_name as failure,
  e.wait,
  b.wait_s,
  e.attempt,
  (array['working', 'failing', 'down'])[e.tool_state + 1] as tool_state,
  e.wait_n as trials,
  e.n as cell_trials,
  e.k as cell_successes,
  e.p,
  e.slow as p_slow,
  case when e.wait_n > 0 then greatest(0, (i.centre - i.half) / i.scale) else 0 end as p_low,
  case when e.wait_n > 0 then least(1, (i.centre + i.half) / i.scale) else 1 end as p_high,
  case when e.wait_n >= p.trials_high then 'high' when e.wait_n >= p.trials_medium then 'medium' else 'low' end
    as confidence,
  now() as as_of
from estimated e
join bucket b on b.wait = e.wait
cross join param p
cross join lateral (select nullif(e.wait_n, 0) as n) w
cross join lateral (
  select
    e.p + p.z ^ 2 / (2 * w.n) as centre,
    p.z * sqrt(e.p * (1 - e.p) / w.n + p.z ^ 2 / (4 * w.n ^ 2)) as half,
    1 + p.z ^ 2 / w.n as scale
) i;
comment on view retry_profiles is 'What a retry with the same arguments would come to: one row a tool, kind of failure, wait, attempt and state of the tool, for every tool and kind that was retried in the last 40 days. The numbers of the server before its logistic layer, from the constants in retry_param; a hint of the policy about a tool, which moves its prior, is not known here.';
comment on column retry_profiles.tenant_id is 'The tenant.';
comment on column retry_profiles.tool is 'The tool.';
comment on column retry_profiles.failure is 'What had gone wrong, as one of the failure kinds.';
comment on column retry_profiles.wait is 'The wait before the retry: 0 below 2 s, 1 below 8 s, 2 below 30 s, 3 below 120 s, 4 longer.';
comment on column retry_profiles.wait_s is 'The seconds that this wait stands for.';
comment on column retry_profiles.attempt is 'Which attempt had failed; 3 stands for later ones too.';
comment on column retry_profiles.tool_state is 'How the tool fared, over all sessions: working, failing (for less than a minute), down (for longer).';
comment on column retry_profiles.trials is 'Retries of this tool after this failure and wait, whatever attempt and state; decayed: half in four days.';
comment on column retry_profiles.cell_trials is 'Those with this attempt and state.';
comment on column retry_profiles.cell_successes is 'Those of them that did not fail.';
comment on column retry_profiles.p is 'The chance that such a retry does not fail now, 0 to 1.';
comment on column retry_profiles.p_slow is 'The same without the recent level: what the last days say, whatever the last hours do.';
comment on column retry_profiles.p_low is 'Lower end of a 90 % interval around p over these trials.';
comment on column retry_profiles.p_high is 'Upper end of a 90 % interval around p over these trials.';
comment on column retry_profiles.confidence is 'Evidence behind p: low below 8 trials, medium, high from 30.';
comment on column retry_profiles.as_of is 'When it was so: now.';
