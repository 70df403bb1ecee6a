-- Only the parent is locked for it, and no row is written.
alter table call add column waited boolean not null default false;
comment on column call.waited is 'It repeats, under another call_id, a call that was told to wait: it is no further step.';
