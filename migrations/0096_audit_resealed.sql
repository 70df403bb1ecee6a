alter table audit add column resealed text;
comment on column audit.resealed is 'The reason, sealed anew with a later key and bound to this entry; the sealed word that the chain is made of stays. Null until then, and where it was erased.';
