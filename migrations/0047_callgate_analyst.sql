-- Roles belong to the whole server: it may be there already, and who migrates may not be allowed to make one. A new view
-- gets its grant in its own migration, where the role exists.
do $$
begin
  if not exists (select from pg_roles where rolname = 'callgate_analyst') then
    create role callgate_analyst nologin;
    comment on role callgate_analyst is 'Reads the views of callgate, and no table.';
  end if;
exception
  -- Another database of this server makes it at this moment, or it may not be made from here.
  when insufficient_privilege or duplicate_object or unique_violation then null;
end
$$;
do $$
begin
  if exists (select from pg_roles where rolname = 'callgate_analyst') then
    grant usage on schema callgate to callgate_analyst;
    grant select on approvals, attempts, coercions, decisions_by_rule, findings, halts, operator_events,
      policy_activations, retry_calibration, retry_profiles, self_corrections, session_costs, sessions_now,
      tool_call, tool_quality, unknown_tools, wasted_retries
      to callgate_analyst;
  end if;
end
$$;
