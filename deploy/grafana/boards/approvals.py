"""Approvals: what people are asked, how long agents wait, and what operators did."""

from panels import METRICS, STORED, board, panel, prom, row, sql

RATE = "[$__rate_interval]"
OF = "tenant_id in ($tenant)"

BOARD = board(
    "approvals",
    "approvals",
    "What people are asked, how long agents wait for them, and what operators did.",
    METRICS + STORED,
    row(
        "Now",
        panel(
            "Open questions",
            "stat",
            "Calls that wait for a person.",
            sql(f"select count(*) as open from callgate.approvals where status = 'pending' and {OF}"),
            wide=6,
            high=4,
            steps=[(10, "look")],
            runbook="CallgateApprovalOld",
        ),
        panel(
            "Oldest question",
            "stat",
            "How long the oldest open question has waited; 0 where there is none.",
            sql(
                "select coalesce(max(extract(epoch from now() - asked_at)), 0) as age from callgate.approvals "
                f"where status = 'pending' and {OF}"
            ),
            unit="s",
            wide=6,
            high=4,
            steps=[(900, "look"), (2700, "bad")],
            runbook="CallgateApprovalOld",
        ),
        panel(
            "Asked a second",
            "stat",
            "Verdicts a second that ask a person.",
            prom(f'sum(rate(callgate_evaluations_total{{callgate_decision="ASK",$of}}{RATE}))'),
            unit="ops",
            wide=6,
            high=4,
        ),
        panel(
            "Answered in time",
            "stat",
            "Of the questions of the chosen time that have ended: the share that somebody "
            "answered. The others expired, which counts as no.",
            sql(f"""select count(*) filter (where status in ('approved', 'denied'))::float8
                  / nullif(count(*) filter (where status <> 'pending'), 0) as share from callgate.approvals
                  where $__timeFilter(asked_at) and {OF}"""),
            unit="percentunit",
            wide=6,
            high=4,
            runbook="CallgateApprovalOld",
        ),
    ),
    row(
        "As the metrics have it",
        panel(
            "Open, and sessions that wait",
            "timeseries",
            "Open questions of all tenants, and sessions that wait for one.",
            prom("max(callgate_approvals_open{$of})", "questions"),
            prom("max(callgate_approvals_sessions{$of})", "sessions"),
            runbook="CallgateApprovalOld",
        ),
        panel(
            "Age of the oldest",
            "timeseries",
            "How long the oldest open question of all tenants has waited.",
            prom("max(callgate_approvals_oldest_seconds{$of})", "oldest"),
            unit="s",
            steps=[(1800, "look")],
            runbook="CallgateApprovalOld",
        ),
        panel(
            "Wait, by answer",
            "timeseries",
            "Nine of ten questions were answered within this time.",
            prom(
                f"histogram_quantile(0.9, sum by (le, callgate_answer) "
                f"(rate(callgate_approvals_wait_duration_seconds_bucket{{$of}}{RATE})))",
                "{{callgate_answer}}",
            ),
            unit="s",
        ),
    ),
    row(
        "Open",
        panel(
            "Waiting for a person",
            "table",
            "The oldest first; `callgate approvals approve ID` or `deny ID`.",
            sql(f"""select asked_at, expires_at, tool, left(arguments, 200) as arguments, justification, rule, message,
                  agent_id, session_id, approval_id, tenant_id from callgate.approvals where status = 'pending' and {OF}
                  order by asked_at limit 100"""),
            wide=24,
            high=9,
            runbook="CallgateApprovalOld",
        ),
    ),
    row(
        "How it goes",
        panel(
            "Questions by how they ended",
            "timeseries",
            "Questions asked, by what has become of them, over time.",
            sql(
                f"""select $__timeGroup(asked_at, $__interval) as time, status as metric, count(*) as questions
                  from callgate.approvals where $__timeFilter(asked_at) and {OF} group by 1, 2 order by 1""",
                series=True,
            ),
            wide=8,
            stack=True,
        ),
        panel(
            "Wait for an answer",
            "timeseries",
            "From question to answer, by when it was asked: half and nine of ten wait no longer.",
            sql(
                f"""select $__timeGroup(asked_at, $__interval) as time,
                  percentile_cont(0.5) within group (order by waited_ms) as half,
                  percentile_cont(0.9) within group (order by waited_ms) as nine_of_ten
                  from callgate.approvals where answered_at is not null and $__timeFilter(asked_at) and {OF}
                  group by 1 order by 1""",
                series=True,
            ),
            unit="ms",
            wide=8,
        ),
        panel(
            "By tool and rule",
            "table",
            "What asks most, and how often the answer is yes. What is always approved needs no "
            "question; what is always denied, none either.",
            sql(f"""select tool, rule, count(*) as asked, count(*) filter (where status = 'approved') as approved,
                  count(*) filter (where status = 'denied') as denied, count(*) filter (where status = 'expired') as expired,
                  avg(waited_ms) as mean_wait_ms, tenant_id from callgate.approvals where $__timeFilter(asked_at) and {OF}
                  group by tenant_id, tool, rule order by asked desc limit 50"""),
            wide=8,
            units={"mean_wait_ms": "ms"},
        ),
    ),
    row(
        "What people did",
        panel(
            "Halts that hold",
            "timeseries",
            "What is halted, by kind: the kill switch, of all tenants.",
            prom("max by (callgate_halt_kind) (callgate_halts{$of})", "{{callgate_halt_kind}}"),
            wide=24,
            high=6,
            runbook="CallgateHalted",
        ),
        panel(
            "Answers, halts, grants, phases, policies",
            "table",
            "Everything that operators did, with who and why.",
            sql(f"""select at, actor, kind, session_id, subject, reason, detail, tenant_id from callgate.operator_events
                  where $__timeFilter(at) and {OF} order by at desc limit 200"""),
            wide=16,
            high=9,
        ),
        panel(
            "Policies that were active",
            "table",
            "Which policy judged when, and who activated it.",
            sql(f"""select revision, activated_at, replaced_at, activated_by, note, policy_version, tenant_id
                  from callgate.policy_activations where {OF} order by activated_at desc limit 50"""),
            wide=8,
            high=9,
            runbook="CallgatePolicyBehind",
        ),
    ),
)
