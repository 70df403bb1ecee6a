alter table outcome add column effect_open boolean, add column repeat smallint;
comment on column outcome.effect_open is 'The call did not succeed, and may have taken effect all the same.';
comment on column outcome.repeat is 'Advice: who may execute it again: 1 by_client, 2 by_model, 3 by_person, 4 never; null where nothing was advised, or by an earlier build.';
