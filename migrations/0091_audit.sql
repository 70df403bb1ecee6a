create table audit (
  tenant_id bigint not null,
  number bigint not null,
  at timestamptz not null,
  kind text not null,
  words text[] not null,
  salts bytea[] not null,
  marks bytea[] not null,
  erased_by bigint,
  previous bytea not null,
  hash bytea not null,
  primary key (tenant_id, number)
);
comment on table audit is 'Append-only: what people and administrators did, as a chain of hashes. Written in the transaction of what it tells of, by audit_append.';
comment on column audit.tenant_id is 'The tenant.';
comment on column audit.number is 'Counts the tenant''s entries, from 1, without a gap.';
comment on column audit.at is 'When, by the database''s time.';
comment on column audit.kind is 'What was done: answered, halted, policy_activated, ...';
comment on column audit.words is 'Who, by which credential, from where, about which session, what, and why; null where nothing was said, or where it was erased.';
comment on column audit.salts is 'What keeps the mark of each word from being guessed; goes with its word.';
comment on column audit.marks is 'SHA-256 of salt and word, for each word: they stay when a word is erased, and are what the chain is made of.';
comment on column audit.erased_by is 'The entry that tells who had words of this one erased last; null while all are there.';
comment on column audit.previous is 'The hash of the entry before; 32 zero bytes for the first.';
comment on column audit.hash is 'SHA-256 of all that cannot be erased: previous, tenant, number, time, kind, marks.';
