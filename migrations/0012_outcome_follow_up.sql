alter table outcome
  add column follow_up_ok boolean,
  add column trials double precision,
  add column as_of timestamptz,
  add column probe boolean;
comment on column outcome.follow_up_ok is 'For a follow-up on a failure: it did not fail. Null when it is none, or when nobody can tell (censored).';
comment on column outcome.trials is 'Advice: decayed trials behind the chance, of this tool, kind and wait.';
comment on column outcome.as_of is 'Advice: when they were counted; null before the first.';
comment on column outcome.probe is 'Advice: the estimate said no, and a retry was allowed to learn.';
comment on column outcome.basis is 'Where the chance came from: 0 prior, 1 kind, 2 tool, 3 cell.';
comment on column outcome.guard is 'What overruled the chance: 1 unsafe, 2 rate_limit_escalation, 3 attempts, 4 retry_budget; null nothing.';
