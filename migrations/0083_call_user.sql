-- Only the parent is locked for it, and no row is written.
alter table call add column user_id text;
comment on column call.user_id is 'The person whom the agent works for with the call, as its caller names them; null where nobody is named.';
