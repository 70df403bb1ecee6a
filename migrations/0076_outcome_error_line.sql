alter table outcome
  add column error_line text;
comment on column outcome.error_line is 'The error in one line, without what is redacted: what a model is told of it.';
