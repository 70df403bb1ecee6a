alter table outcome
  add column sketch bytea,
  add column kept boolean not null default false;
comment on column outcome.sketch is 'What the result looks like: 64 bytes by which results that are nearly the same are known.';
comment on column outcome.kept is 'Later calls may depend on the answer.';
