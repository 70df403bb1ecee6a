-- A build that knows less than the schema may serve on it, as long as nothing was taken away that it needs.
create table schema_floor (
  id int primary key check (id = 1),
  migration bigint not null
);
comment on table schema_floor is 'Which builds of callgate may serve on this schema: one row.';
comment on column schema_floor.id is 'Always 1.';
comment on column schema_floor.migration is 'Builds that have this migration may; a migration that takes something away raises it.';
insert into schema_floor (id, migration) values (1, 130);
