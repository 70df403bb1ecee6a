alter table ledger add column guard smallint;
comment on column ledger.guard is 'Advice after a failure: what overruled the chance; codes as in outcome.guard, null nothing.';
