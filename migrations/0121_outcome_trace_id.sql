-- Only the parent is locked for it, and no row is written.
alter table outcome add column trace_id bytea;
comment on column outcome.trace_id is 'The OpenTelemetry trace of the report, 16 bytes; null where none was known.';
