create table approval_notice (
  tenant_id bigint not null,
  approval_id text collate "C" not null,
  attempts integer not null default 1,
  claimed_until timestamptz not null,
  next_at timestamptz not null,
  delivered_at timestamptz,
  expires_at timestamptz not null,
  primary key (tenant_id, approval_id)
);
comment on table approval_notice is 'Which questions to people were told to a webhook (serve --approvals-webhook): the replica whose claim holds tells it. A row is deleted a day after its question has expired.';
comment on column approval_notice.tenant_id is 'The tenant.';
comment on column approval_notice.approval_id is 'The question, as in call.approval_id.';
comment on column approval_notice.attempts is 'How often it was tried.';
comment on column approval_notice.claimed_until is 'Until then one replica tries.';
comment on column approval_notice.next_at is 'Not tried again before.';
comment on column approval_notice.delivered_at is 'When the receiver took it; null until then.';
comment on column approval_notice.expires_at is 'When the question counts as denied.';
