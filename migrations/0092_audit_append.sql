-- src/domain/audit.rs has the same encoding, by which the chain is verified. A later encoding is another function.
create function audit_append(of_tenant bigint, of_kind text, given text[]) returns bigint
language plpgsql as $$
declare
  head record;
  -- To the microsecond, as it is stored.
  now_us bigint := extract(epoch from clock_timestamp()) * 1000000;
  salts bytea[] := array_fill(null::bytea, array[6]);
  marks bytea[] := array_fill(null::bytea, array[6]);
  bound bytea;
  next_hash bytea;
begin
  update audit_head h set number = h.number + 1 where h.tenant_id = of_tenant returning h.number, h.hash into head;
  if not found then
    insert into audit_head (tenant_id, number, hash) values (of_tenant, 0, decode(repeat('00', 32), 'hex'))
      on conflict do nothing;
    update audit_head h set number = h.number + 1 where h.tenant_id = of_tenant returning h.number, h.hash into head;
  end if;
  bound := head.hash || int8send(of_tenant) || int8send(head.number) || int8send(now_us)
    || int4send(octet_length(convert_to(of_kind, 'UTF8'))) || convert_to(of_kind, 'UTF8');
  for i in 1 .. 6 loop
    if given[i] is not null then
      salts[i] := uuid_send(gen_random_uuid());
      marks[i] := sha256(salts[i] || convert_to(given[i], 'UTF8'));
    end if;
    bound := bound || coalesce(marks[i], decode(repeat('00', 32), 'hex'));
  end loop;
  next_hash := sha256(bound);
  insert into audit (tenant_id, number, at, kind, words, salts, marks, previous, hash)
    values (of_tenant, head.number, timestamptz 'epoch' + now_us * interval '1 microsecond', of_kind, given, salts,
      marks, head.hash, next_hash);
  update audit_head h set hash = next_hash where h.tenant_id = of_tenant;
  return head.number;
end
$$;
comment on function audit_append is 'Adds an entry to a tenant''s audit: what was done, and the six words of audit.words. Gives its number. Called last in its transaction: the next entry waits for the commit.';
