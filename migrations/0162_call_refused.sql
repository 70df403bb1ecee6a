-- For what refusals saved: answers from memory, denials and stops are few beside the calls that are let through.
create index call_refused on only call (tenant_id, at) where decision >= 3 and not observed;
