-- For the count of sessions that were stopped, which every server makes a few times a minute: verdicts of STOP are few.
create index call_stopped on only call (tenant_id, at) where decision = 5;
