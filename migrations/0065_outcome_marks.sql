alter table outcome
  add column marks jsonb,
  add column news boolean not null default true;
comment on column outcome.marks is 'What loop rules read of a success: shape, numberless and names (eight bytes of a hash each, hexadecimal), named (a few names), says (0 little, 1 no_matches, 2 much, 3 lists), failed.';
comment on column outcome.news is 'True when it brought something new. Of reports before this column it is taken for true: that only lets a call run again.';
comment on column outcome.progress is 'True when it brought something new that was more than another name or number for what the call gave before.';
