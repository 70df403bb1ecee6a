-- Only the parent is locked for it, and no row is written.
alter table call add column in_steps boolean not null default false;
comment on column call.in_steps is 'It is done in steps, as a line of a shell: that it failed does not say that nothing was done.';
