-- For the halts that held within the last hour: those that hold have an index, and each that was lifted is in this one.
create index halt_resumed on halt (tenant_id, resumed_at) where resumed_at is not null;
