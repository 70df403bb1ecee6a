-- For who answers a question, and who asks how it stands (the inbox): by its id alone.
create index call_approval on call (tenant_id, approval_id) where approval_id is not null;
