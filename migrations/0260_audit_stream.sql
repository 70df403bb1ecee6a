create table audit_stream (
  tenant_id bigint primary key,
  number bigint not null,
  claimed_until timestamptz not null
);
comment on table audit_stream is 'Position of the export of each tenant''s audit log to a collector of OpenTelemetry. One replica at a time exports a tenant''s entries.';
comment on column audit_stream.tenant_id is 'The tenant.';
comment on column audit_stream.number is 'The newest entry that the collector has accepted; 0 before the first.';
comment on column audit_stream.claimed_until is 'End of the claim of the replica that exports.';
