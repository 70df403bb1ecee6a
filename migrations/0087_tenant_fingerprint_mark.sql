alter table tenant add column fingerprint_mark bytea;
comment on column tenant.fingerprint_mark is 'Tells the key apart with which its fingerprints and digests are made, without giving it away; null where they are made without one, and its values are stored as they are. Servers with another key do not serve the tenant.';
