alter table tenant add column console_key bytea;
comment on column tenant.console_key is 'Of the tenant default alone: the key of the code that each cookie of the console ends with. A cookie with another code is looked up by no server.';
update tenant set console_key = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) where tenant_id = 1;
