alter table approval_notice add column last_error text, add column last_error_at timestamptz;
comment on column approval_notice.last_error is 'The problem of the last failed attempt; null without one.';
comment on column approval_notice.last_error_at is 'Time of that attempt; null without one.';
