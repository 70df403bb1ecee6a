-- For the view self_corrections, which the plane reads every minute.
create index call_corrected on call (tenant_id, at) where self_corrections is not null;
