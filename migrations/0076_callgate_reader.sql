-- Roles belong to the whole server: it may be there already, and who migrates may not be allowed to make one. Its rights,
-- and row-level security on every table, are given at each start (src/store/postgres/bind.rs): a table that a later
-- migration makes has them from its first day.
do $$
begin
  if not exists (select from pg_roles where rolname = 'callgate_reader') then
    create role callgate_reader nologin;
    comment on role callgate_reader is 'What callgate reads for a tenant, and the views: sees that tenant''s rows alone.';
  end if;
  if not (select rolsuper from pg_roles where rolname = current_user) then
    execute format('grant callgate_reader to %I', current_user);
  end if;
exception
  -- Another database of this server makes it at this moment, or it may not be made from here.
  when insufficient_privilege or duplicate_object or unique_violation then null;
end
$$;
