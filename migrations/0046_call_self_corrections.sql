alter table call add column self_corrections jsonb;
comment on column call.self_corrections is 'What this call shows of the tool''s last refusal for its arguments: field, rule, and whether it is right now. Only what the model was told to correct by itself.';
