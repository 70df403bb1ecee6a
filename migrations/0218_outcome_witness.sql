alter table outcome add column witness bytea;
comment on column outcome.witness is 'Digest (16 bytes) of the state of what the call read, where it was told before and after and was the same; of a write, the state that it left. Null otherwise.';
