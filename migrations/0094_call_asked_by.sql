-- Only the parent is locked for it, and no row is written.
alter table call add column asked_by text;
comment on column call.asked_by is 'Whose credential asked the question of approval_id; null where nobody shows one.';
