alter table call
  add column key_honoured boolean not null default false,
  add column repeatable boolean not null default false;
comment on column call.effect is 'What it does to the world: 0 unknown, 1 read, 2 write, 3 poll, 4 check.';
comment on column call.key_honoured is 'A write whose provider honours the idempotency key.';
comment on column call.repeatable is 'A write whose identical repetition is meant.';
