create table bulkhead_lease (
    tenant_id bigint not null,
    limit_key text not null,
    session_id text not null,
    call_id text not null,
    fingerprint bytea not null,
    in_flight boolean not null,
    arrived_at timestamptz not null,
    lease_until timestamptz not null,
    primary key (tenant_id, limit_key, session_id, call_id)
);
create index bulkhead_lease_call on bulkhead_lease (tenant_id, session_id, call_id);
comment on table bulkhead_lease is 'Calls in flight under the limits of the rule bulkhead, and the calls that wait for one. A row without a session locks its limit.';
comment on column bulkhead_lease.tenant_id is 'Tenant.';
comment on column bulkhead_lease.limit_key is 'Limit: its name, what it counts per, and the tool or resource.';
comment on column bulkhead_lease.session_id is 'Session of the call; empty in the row that locks the limit.';
comment on column bulkhead_lease.call_id is 'The call.';
comment on column bulkhead_lease.fingerprint is 'Fingerprint of the call: a repetition under another id keeps its place in the queue.';
comment on column bulkhead_lease.in_flight is 'False for a call in the queue.';
comment on column bulkhead_lease.arrived_at is 'Time of the first claim, which orders the queue.';
comment on column bulkhead_lease.lease_until is 'End of the lease, after which the row counts no more.';
