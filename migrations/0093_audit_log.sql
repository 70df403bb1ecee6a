create view audit_log as
select
  tenant_id,
  number,
  at,
  kind,
  words[1] as who,
  words[2] as credential,
  words[3] as origin,
  words[4] as session_id,
  words[5] as what,
  words[6] as why,
  erased_by,
  encode(hash, 'hex') as hash
from audit;
comment on view audit_log is 'What people and administrators did: who, by which credential, from where, what and why.';
comment on column audit_log.tenant_id is 'The tenant.';
comment on column audit_log.number is 'Counts the tenant''s entries, from 1, without a gap.';
comment on column audit_log.at is 'When.';
comment on column audit_log.kind is 'What was done: answered, seconded, withdrawn, phase_set, outcome_settled, granted, revoked, halted, resumed, policy_stored, policy_activated, token_created, ...';
comment on column audit_log.who is 'Who; null where it was erased.';
comment on column audit_log.credential is 'How they were known: local (not at all), token, certificate or jwt, with its name.';
comment on column audit_log.origin is 'From which address; null over a Unix socket or from the command line.';
comment on column audit_log.session_id is 'The session it is about; null for what concerns none alone.';
comment on column audit_log.what is 'What was done, in words.';
comment on column audit_log.why is 'Why, in theirs.';
comment on column audit_log.erased_by is 'The entry that tells who had words of this one erased last; null while all are there.';
comment on column audit_log.hash is 'The entry''s hash, hexadecimal: with its number an anchor that can be kept elsewhere.';
do $$
begin
  if exists (select from pg_roles where rolname = 'callgate_analyst') then
    grant select on audit_log to callgate_analyst;
  end if;
end
$$;
