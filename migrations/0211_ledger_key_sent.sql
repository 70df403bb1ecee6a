alter table ledger add column key_sent boolean;
comment on column ledger.key_sent is 'The last execution received the idempotency key; null where that is not known.';
