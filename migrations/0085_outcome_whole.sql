alter table outcome
  add column whole_bytes bigint,
  add column whole_sha256 bytea;
comment on column outcome.whole_bytes is 'Size of the answer of which result is only the beginning. Null: nothing was cut.';
comment on column outcome.whole_sha256 is 'SHA-256 of that answer, without the secrets that are not stored.';
