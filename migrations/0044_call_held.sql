create index call_held on call (tenant_id, session_id, seq desc) where approval_id is not null;
