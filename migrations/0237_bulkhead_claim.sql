create function bulkhead_claim(of_tenant bigint, of_limit text, most bigint, of_session text, of_call text,
    of_fingerprint bytea, now_ms bigint, until_ms bigint) returns bigint language plpgsql as $$
declare
  at timestamptz := to_timestamp(now_ms / 1000.0);
  until timestamptz := to_timestamp(until_ms / 1000.0);
  arrived timestamptz;
  place bigint;
begin
  -- One claim of a limit at a time. Each statement below sees those before it.
  perform from bulkhead_lease b where b.tenant_id = of_tenant and b.limit_key = of_limit and b.session_id = ''
    and b.call_id = '' for update;
  if not found then
    insert into bulkhead_lease values (of_tenant, of_limit, '', '', '', false, at, at + interval '1 day') on conflict do nothing;
    perform from bulkhead_lease b where b.tenant_id = of_tenant and b.limit_key = of_limit and b.session_id = ''
      and b.call_id = '' for update;
  end if;
  delete from bulkhead_lease b where b.tenant_id = of_tenant and b.limit_key = of_limit and b.lease_until <= at
    and b.session_id <> '';
  update bulkhead_lease b set lease_until = greatest(b.lease_until, until) where b.tenant_id = of_tenant
    and b.limit_key = of_limit and b.session_id = of_session and b.call_id = of_call and b.in_flight;
  if found then
    return -1;
  end if;
  select min(b.arrived_at) into arrived from bulkhead_lease b where b.tenant_id = of_tenant and b.limit_key = of_limit
    and b.session_id = of_session and b.fingerprint = of_fingerprint and not b.in_flight;
  arrived := coalesce(arrived, at);
  delete from bulkhead_lease b where b.tenant_id = of_tenant and b.limit_key = of_limit
    and b.session_id = of_session and b.fingerprint = of_fingerprint and not b.in_flight;
  select greatest(0, count(*) + 1 - most) into place from bulkhead_lease b
    where b.tenant_id = of_tenant and b.limit_key = of_limit and b.session_id <> ''
      and (b.in_flight or (b.arrived_at, b.session_id collate "C", b.fingerprint)
        < (arrived, of_session collate "C", of_fingerprint));
  insert into bulkhead_lease values (of_tenant, of_limit, of_session, of_call, of_fingerprint, place = 0, arrived,
    case when place = 0 then until else at + interval '1 ms' * (5000 + least(30000, 1000 * ((place + most - 1) / most))) end)
    on conflict (tenant_id, limit_key, session_id, call_id) do update set fingerprint = excluded.fingerprint,
      in_flight = excluded.in_flight, arrived_at = excluded.arrived_at, lease_until = excluded.lease_until;
  return place;
end $$;
comment on function bulkhead_claim is 'Claims the turn of a call under a limit of calls in flight: -1 in flight before, 0 in flight now, otherwise the place in the queue.';
