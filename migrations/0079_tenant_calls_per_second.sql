comment on column tenant.calls_per_second is 'Calls that it may ask each replica for in a second. Null: as many as there is room for.';
