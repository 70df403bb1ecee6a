-- For what is erased at its term: arguments that people have chosen, which hardly any event has.
create index session_event_edited on session_event (tenant_id, at) where detail -> 'edit' is not null;
