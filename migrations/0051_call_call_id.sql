-- For looking up a call by its id alone. On the parent only: the server builds the partitions' indexes without locking
-- them, and attaches them; partitions that are made later have it from the start.
create index call_call_id on only call (tenant_id, call_id);
