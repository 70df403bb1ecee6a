alter table call add column witness bytea;
alter table outcome add column witness bytea;
comment on column call.witness is 'Digest (16 bytes) of the state of what the call reads, by its caller''s program, before it ran; null where nobody told.';
comment on column outcome.witness is 'The same, where it was told again after the call and had not changed; null otherwise.';
