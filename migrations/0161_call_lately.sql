-- For what the fleet does now: calls of the last minutes by decision, counted from the index alone. It grows at its end.
create index call_lately on only call (tenant_id, at) include (decision) where not observed;
