create table policy_rollout (
  tenant_id bigint not null,
  step bigint not null,
  hash text collate "C" not null,
  baseline text collate "C" not null,
  share int not null,
  agents text[] not null,
  state text not null,
  started_at timestamptz not null,
  changed_at timestamptz not null default now(),
  changed_by text not null,
  note text not null,
  primary key (tenant_id, step)
);
comment on table policy_rollout is 'Append-only: the steps of rollouts, in which a stored policy judges a part of the sessions. The highest step holds.';
comment on column policy_rollout.tenant_id is 'The tenant.';
comment on column policy_rollout.step is 'Counts the steps of all rollouts, from 1.';
comment on column policy_rollout.hash is 'The policy.';
comment on column policy_rollout.baseline is 'The policy that was active at the start; empty for the built-in one.';
comment on column policy_rollout.share is 'Share of the root sessions, in basis points.';
comment on column policy_rollout.agents is 'Agents whose call trees are in it as a whole.';
comment on column policy_rollout.state is 'running; promoted, by the activation of its policy; aborted.';
comment on column policy_rollout.started_at is 'When the rollout began.';
comment on column policy_rollout.changed_at is 'When this step was made.';
comment on column policy_rollout.changed_by is 'Who made it.';
comment on column policy_rollout.note is 'Why, in their words.';
