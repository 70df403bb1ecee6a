-- Which writes may or may not have happened?
--
-- Writes whose outcome nobody knows: they timed out, lost their connection, or were never reported on. Oldest first.
-- How to read it: each is for a person (or a read of the resource) to check; until then the gate refuses to repeat it.
-- A tool that is here often needs an idempotency key, or a way to look up what it did.
select
  tenant_id,
  judged_at,
  session_id,
  call_id,
  tool,
  resource,
  failure,
  error_message,
  idempotency_key
from callgate.tool_call
where outcome = 'unknown' and effect = 'write'
order by judged_at
limit 200;
