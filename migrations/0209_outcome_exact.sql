alter table outcome add column key_sent boolean, add column inferred boolean, add column double_effect boolean;
comment on column outcome.key_sent is 'The execution received the idempotency key; null for what an earlier build recorded.';
comment on column outcome.inferred is 'A success that nobody reported: a later attempt was told that what this one would make exists already.';
comment on column outcome.double_effect is 'A success of a call that acts, when another attempt of the same occurrence had succeeded: it was done twice.';
