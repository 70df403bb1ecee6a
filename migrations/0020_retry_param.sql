-- What the formulas are held within, and what evidence is called: the views need them too.
insert into retry_param (name, value) values
  ('logit_edge', 0.001),
  ('expected_edge', 0.01),
  ('recent_edge', 0.02),
  ('recent_min', 0.05),
  ('interval_z', 1.645),
  ('trials_medium', 8),
  ('trials_high', 30);
