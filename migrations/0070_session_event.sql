comment on column session_event.kind is 'What: answered, withdrawn, phase_set, compacted, outcome_settled, granted, revoked.';
comment on column session_event.detail is 'The question and its answer, the question that was withdrawn, the phase and plan, the call and what came of it, or the grant.';
