-- Added to, not made anew: servers of a build before read the names alone.
alter table tenant
  add column state text not null default 'active',
  add column state_at timestamptz not null default now(),
  add column state_by text not null default '',
  add column state_reason text not null default '',
  add column calls_per_second bigint,
  add column sessions bigint,
  add column stored_bytes bigint,
  add column approvals_open bigint,
  add column used_sessions bigint not null default 0,
  add column used_bytes bigint not null default 0,
  add column used_at timestamptz;
comment on column tenant.state is 'Whether it is served: active, suspended (nothing of it is lost), deleted (what it stored is being erased, or was).';
comment on column tenant.state_at is 'Since when.';
comment on column tenant.state_by is 'By whom.';
comment on column tenant.state_reason is 'Why, in their words.';
comment on column tenant.calls_per_second is 'Calls that it may ask for in a second, over all replicas. Null: as many as there is room for.';
comment on column tenant.sessions is 'Call trees that it may have stored. Null: any number.';
comment on column tenant.stored_bytes is 'Bytes that its calls and outcomes may take. Null: any number.';
comment on column tenant.approvals_open is 'Questions to people that it may have open. Null: any number.';
comment on column tenant.used_sessions is 'Call trees that it had stored when that was counted last.';
comment on column tenant.used_bytes is 'Bytes that its calls and outcomes took then.';
comment on column tenant.used_at is 'When that was; null when it never was, since nothing limits it.';
