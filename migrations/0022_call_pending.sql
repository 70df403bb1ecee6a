-- For the inbox: questions that are still open.
create index call_pending on call (tenant_id, approval_expires_at) where approval_id is not null;
