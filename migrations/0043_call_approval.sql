create index call_approval on call (tenant_id, approval_id) where approval_id is not null;
