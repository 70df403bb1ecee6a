-- Claims and comments of a few approval requests at a time. Entries of these kinds have the request's id as their fifth
-- word.
create index audit_of_approval on audit (tenant_id, (words[5]))
  where kind in ('approval_claimed', 'approval_released', 'approval_commented');
