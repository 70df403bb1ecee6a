-- The queue of notifications is the table of the former webhook: builds before this one go on with its rows that have
-- no destination.
alter table approval_notice
  add column destination text collate "C",
  add column event text,
  add column subject text;
create index notification_due on approval_notice (destination, next_at)
  where delivered_at is null and destination is not null;
comment on table approval_notice is 'The queue of notifications (serve --notifications): one row a destination and event. The replica whose claim holds sends it. A row is deleted a day after its expiry.';
comment on column approval_notice.approval_id is 'The key of the notification: the hexadecimal SHA-256 of destination, event and subject. Without a destination: the approval request, as builds before 0226 stored it.';
comment on column approval_notice.attempts is 'Attempts so far.';
comment on column approval_notice.delivered_at is 'When the destination accepted it, or when nobody needed it any more; null until then.';
comment on column approval_notice.expires_at is 'No attempt is made from then on: the expiry of the approval request, or a day after the event.';
comment on column approval_notice.destination is 'The name of the destination in the file of --notifications.';
comment on column approval_notice.event is 'requested, escalated, decided, expired, halted, budget or circuit_open.';
comment on column approval_notice.subject is 'The subject of the event, as JSON: an approval request, a halt, a budget or a tool. Null from its delivery on.';
