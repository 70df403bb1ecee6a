alter table outcome
  add column gist text,
  add column made text;
comment on column outcome.gist is 'What the stored result says, in a few words, for a model that has forgotten it.';
comment on column outcome.made is 'The names of what the call may have made, where its arguments do not hold them.';
