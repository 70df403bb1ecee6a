-- By who has logged in, which no setting of theirs can change. Row-level security asks it for everybody but the server
-- itself. Whoever may act as callgate_reader may act as any tenant anyway.
create function readable_tenants() returns bigint[]
language sql stable security definer set search_path = callgate, pg_temp as $$
  select case
    when pg_has_role(session_user, 'callgate_reader', 'member') or (select count(*) from tenant) = 1
      then (select array_agg(t.tenant_id) from tenant t)
    else (select array_agg(a.tenant_id) from analyst a where a.name = session_user)
  end
$$;
comment on function readable_tenants is 'The tenants whose rows the views show to whoever has logged in.';
