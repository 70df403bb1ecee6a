alter table tenant add column clock_seen_at timestamptz, add column clock_gap_ms bigint;
comment on column tenant.clock_seen_at is 'Of the tenant default alone: the database''s time when a server last looked at the clocks, which each does once a minute.';
comment on column tenant.clock_gap_ms is 'Of the tenant default alone: time that the database''s clock passed over while no server looked, in milliseconds. By so much later is deleted what is past its term.';
