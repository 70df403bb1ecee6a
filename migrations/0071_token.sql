create table token (
  token_id text collate "C" primary key,
  tenant_id bigint not null,
  name text collate "C" not null,
  digest bytea not null,
  roles text[] not null,
  groups text[] not null,
  agents text,
  any_session boolean not null,
  created_at timestamptz not null default now(),
  created_by text not null,
  expires_at timestamptz,
  used_at timestamptz,
  revoked_at timestamptz,
  revoked_by text
);
create index token_of on token (tenant_id, token_id);
comment on table token is 'API tokens: everything of them but the tokens. A row stays after its end. Whose a token is comes out only once it is found, so that its id alone is the key.';
comment on column token.token_id is 'Its public name, a part of the token.';
comment on column token.tenant_id is 'The tenant, that of whoever shows it.';
comment on column token.name is 'Who shows it: stored with what is done.';
comment on column token.digest is 'SHA-256 of the whole token, which has 256 random bits.';
comment on column token.roles is 'What its holder may do: agent, approver, operator, analyst, admin.';
comment on column token.groups is 'The groups of people whose questions its holder answers.';
comment on column token.agents is 'The agents that its holder may ask for, as a pattern; null for any.';
comment on column token.any_session is 'Its holder works in sessions that others have opened, too.';
comment on column token.created_at is 'When it was made.';
comment on column token.created_by is 'Who made it.';
comment on column token.expires_at is 'From when on it is refused; null for never.';
comment on column token.used_at is 'When it was shown last, to about ten seconds; null for never.';
comment on column token.revoked_at is 'Since when it is refused; null while it holds.';
comment on column token.revoked_by is 'Who revoked it.';
