create index call_corrected on call (tenant_id, at) where self_corrections is not null;
