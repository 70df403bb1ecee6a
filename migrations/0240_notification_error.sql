alter table approval_notice add column last_error text;
comment on column approval_notice.last_error is 'The problem of the last failed attempt; null without one.';
