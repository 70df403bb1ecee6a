#!/bin/sh
# Run once, on the empty database server: the roles, and the database that callgate migrates by itself.
set -eu
psql -v ON_ERROR_STOP=1 -v callgate="$CALLGATE_DB_PASSWORD" -v grafana="$GRAFANA_DB_PASSWORD" -U postgres <<'SQL'
create role callgate login password :'callgate';
-- What it reads for a tenant shows this role that tenant's rows alone; it cannot make roles itself.
create role callgate_reader nologin;
grant callgate_reader to callgate;
create role callgate_analyst nologin;
create role grafana login password :'grafana' in role callgate_analyst;
create database callgate owner callgate;
revoke all on database callgate from public;
grant connect on database callgate to grafana;
SQL
