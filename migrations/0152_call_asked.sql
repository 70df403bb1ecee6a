-- For the inbox: questions in the order in which they were asked.
create index call_asked on only call (tenant_id, at desc, approval_id) where approval_id is not null;
