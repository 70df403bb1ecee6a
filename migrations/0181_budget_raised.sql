comment on column session_event.kind is 'What: answered, seconded (a yes that needs another one), withdrawn, phase_set, compacted, outcome_settled, granted, revoked, budget_raised.';
comment on column session_event.detail is 'The question and its answer, the question that was withdrawn, the phase and plan, the call and what came of it, the grant, or the budget and how much more than the policy''s limit was given, in all.';
comment on column operator_events.kind is 'What: the kind of a session event (answered, phase_set, granted, revoked, budget_raised), halted, resumed or policy_activated.';
