comment on column call_tree.steps is 'New call ids, refused ones too, but for those that repeat a call which was told to wait (call.waited).';
