-- Only the parent is locked for it, and no row is written.
alter table call add column host text;
comment on column call.host is 'The program that the agent runs in, as it names itself; null where it does not.';
