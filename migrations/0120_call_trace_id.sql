-- Only the parent is locked for it, and no row is written.
alter table call add column trace_id bytea;
comment on column call.trace_id is 'The OpenTelemetry trace in which it was judged, 16 bytes; null where none was known.';
