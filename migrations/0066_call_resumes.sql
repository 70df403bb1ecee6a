alter table call add column resumes boolean not null default false;
comment on column call.resumes is 'The session has no runs and was idle before: loops are weighed from here on.';
