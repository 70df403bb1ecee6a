create table tool_description (
  tenant_id bigint not null,
  server text collate "C" not null,
  tool text collate "C" not null,
  digest text collate "C" not null,
  description text not null,
  schema text not null,
  state text not null,
  first_reported_at timestamptz not null default now(),
  first_reported_by text not null,
  last_reported_at timestamptz not null default now(),
  resolved_at timestamptz,
  resolved_by text not null default '',
  primary key (tenant_id, server, tool, digest)
);
create index tool_description_changed on tool_description (tenant_id) where state = 'changed';
comment on table tool_description is 'Descriptions of the tools of MCP servers, as proxies reported them: of each tool the first one, accepted ones, and the newest others.';
comment on column tool_description.tenant_id is 'The tenant.';
comment on column tool_description.server is 'The MCP server, by its name in the settings of its host.';
comment on column tool_description.tool is 'The tool, by its name in policies.';
comment on column tool_description.digest is 'SHA-256 of the whole description, hexadecimal, as reported.';
comment on column tool_description.description is 'The description, at most 16 KiB.';
comment on column tool_description.schema is 'JSON of title, schemas and annotations, at most 32 KiB.';
comment on column tool_description.state is 'first; changed, by nobody accepted or rejected yet; accepted; rejected.';
comment on column tool_description.first_reported_at is 'When it was reported first.';
comment on column tool_description.first_reported_by is 'Who reported it first: the name by the credential, and the agent. Empty after the agent was forgotten.';
comment on column tool_description.last_reported_at is 'When it was reported last, to the hour.';
comment on column tool_description.resolved_at is 'When it was accepted or rejected; null before.';
comment on column tool_description.resolved_by is 'Who accepted or rejected it; empty before.';
