create table policy (
  tenant_id bigint not null,
  hash text collate "C" not null,
  text text not null,
  applied_at timestamptz not null default now(),
  applied_by text not null,
  note text not null,
  primary key (tenant_id, hash)
);
comment on table policy is 'Every policy that was ever applied. A row never changes.';
comment on column policy.tenant_id is 'The tenant.';
comment on column policy.hash is 'SHA-256 of the text, hexadecimal; call.policy_version has its first 16 digits.';
comment on column policy.text is 'The file, as it was applied.';
comment on column policy.applied_at is 'When it was applied first.';
comment on column policy.applied_by is 'Who applied it first.';
comment on column policy.note is 'Why, in their words.';
