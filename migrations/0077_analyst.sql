create table analyst (
  tenant_id bigint not null,
  name text collate "C" not null,
  primary key (tenant_id, name)
);
comment on table analyst is 'Which tenants a person sees in the views, by the database role that they log in as. One who is not listed sees nothing, unless the plane has one tenant alone.';
comment on column analyst.tenant_id is 'The tenant.';
comment on column analyst.name is 'The role that they log in as.';
