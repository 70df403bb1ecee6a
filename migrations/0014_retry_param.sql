create table retry_param (
  name text primary key,
  value double precision not null
);
insert into retry_param (name, value) values
  ('half_life_s', 345600),
  ('recent_half_life_s', 10800),
  ('half_lives_kept', 10),
  ('m_kind', 4),
  ('m_curve', 8),
  ('m_tool', 4),
  ('m_cell', 16),
  ('m_recent', 8),
  ('wait_s_0', 1),
  ('wait_s_1', 4),
  ('wait_s_2', 15),
  ('wait_s_3', 60),
  ('wait_s_4', 300),
  ('prior_timeout', 0.50),
  ('prior_rate_limited', 0.60),
  ('prior_unavailable', 0.55),
  ('prior_network', 0.55),
  ('prior_conflict', 0.60),
  ('prior_auth', 0.03),
  ('prior_permission', 0.03),
  ('prior_not_found', 0.08),
  ('prior_invalid_argument', 0.01),
  ('prior_quota_exhausted', 0.02),
  ('prior_internal', 0.55),
  ('prior_other', 0.12),
  -- What the formulas are held within, and what evidence is called: the views need them too.
  ('logit_edge', 0.001),
  ('expected_edge', 0.01),
  ('recent_edge', 0.02),
  ('recent_min', 0.05),
  ('interval_z', 1.645),
  ('trials_medium', 8),
  ('trials_high', 30);
comment on table retry_param is 'The constants of the retry estimate, as the server uses them; a test compares the two. Changing them here changes the views alone.';
comment on column retry_param.name is 'The constant; a prior is named after its kind of failure.';
comment on column retry_param.value is 'Its value: seconds, trials, or a chance.';
