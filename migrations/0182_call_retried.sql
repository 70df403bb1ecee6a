-- For what retries came to and cost: they are few beside first calls.
create index call_retried on only call (tenant_id, at) where retry_kind = 0;
