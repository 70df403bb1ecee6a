create table console_session (
  session_id bytea primary key,
  sealed bytea not null,
  created_at timestamptz not null default now(),
  seen_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index console_session_end on console_session (expires_at);
comment on table console_session is 'Who is signed in to the console. What was shown is sealed under a key that the browser alone keeps, so that whoever reads the row can show it to nobody. A row is deleted after its end.';
comment on column console_session.session_id is 'SHA-256 of a value that the browser keeps; not the value.';
comment on column console_session.sealed is 'The credential that was shown (XChaCha20-Poly1305).';
comment on column console_session.created_at is 'When they signed in.';
comment on column console_session.seen_at is 'When they did something last, to about a minute.';
comment on column console_session.expires_at is 'When it ends, whatever they do.';
