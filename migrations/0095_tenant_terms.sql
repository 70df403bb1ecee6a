-- Added to, not made anew: servers of a build before read the others alone.
alter table tenant
  add column words_days integer,
  add column calls_days integer,
  add column months_days integer,
  add column words_gone_before timestamptz,
  add column calls_gone_before timestamptz,
  add column retained_at timestamptz;
comment on column tenant.words_days is 'How many days the words of its calls are kept: arguments, results, errors, notes. Null: as long as the calls.';
comment on column tenant.calls_days is 'After how many days of silence a call tree is deleted, with all its rows; the evidence beside them goes at the same age. Null: never.';
comment on column tenant.months_days is 'Of the tenant default alone: after how many days months are dropped, those of all tenants. Null: never.';
comment on column tenant.words_gone_before is 'Words of calls from before are erased.';
comment on column tenant.calls_gone_before is 'Call trees that have been silent since before may be deleted. What is learned is not made anew from further back.';
comment on column tenant.retained_at is 'Of the tenant default alone: when it was last looked for what is past its term.';
