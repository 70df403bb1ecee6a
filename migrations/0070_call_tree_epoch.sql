-- A tree that outlives its month moves on to another one.
comment on column call_tree.epoch is 'The UTC day of its first event, or the later one that it was moved to when its month was dropped; the partition of its calls and outcomes.';
