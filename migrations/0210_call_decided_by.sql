alter table call add column decided_by smallint;
comment on column call.decided_by is 'For a follow-up: who decided to make it: 0 client, 1 model, 2 person; null where it is none, or of an earlier build.';
