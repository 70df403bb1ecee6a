-- For questions about the last days, and for a call that is looked for by its id alone: rows lie in the order of their
-- time, so that this costs next to nothing to keep.
create index call_at on call using brin (at) with (pages_per_range = 32);
