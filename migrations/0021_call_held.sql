-- For who loads a tree: what people were asked of a session, the newest first.
create index call_held on call (shard, tenant_id, session_id, seq desc) where approval_id is not null;
