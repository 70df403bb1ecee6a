create table policy_activation (
  tenant_id bigint not null,
  revision bigint not null,
  hash text collate "C" not null,
  activated_at timestamptz not null default now(),
  activated_by text not null,
  note text not null,
  primary key (tenant_id, revision)
);
comment on table policy_activation is 'Append-only: which policy was active when. The highest revision is.';
comment on column policy_activation.tenant_id is 'The tenant.';
comment on column policy_activation.revision is 'Counts the activations, from 1.';
comment on column policy_activation.hash is 'The policy.';
comment on column policy_activation.activated_at is 'Since when.';
comment on column policy_activation.activated_by is 'Who activated it.';
comment on column policy_activation.note is 'Why, in their words.';
