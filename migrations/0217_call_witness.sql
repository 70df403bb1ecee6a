alter table call add column witness bytea;
comment on column call.witness is 'Digest (16 bytes) of the state of what the call reads, by its caller''s program, before it ran; null where nobody told.';
