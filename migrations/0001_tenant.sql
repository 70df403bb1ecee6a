create table tenant (
  tenant_id bigint primary key,
  name text not null unique,
  created_at timestamptz not null default now()
);
comment on table tenant is 'An isolated customer of the plane. Nothing crosses tenants.';
comment on column tenant.tenant_id is 'Names the tenant in every other table.';
comment on column tenant.name is 'Its name, as credentials carry it.';
comment on column tenant.created_at is 'When it was added.';
insert into tenant (tenant_id, name) values (1, 'default');
