"""Approvals: open approval requests, waits of agents, and actions of operators."""

from panels import METRICS, STORED, board, panel, prom, row, sql

RATE = "[$__rate_interval]"
OF = "tenant_id in ($tenant)"

BOARD = board(
    "approvals",
    "approvals",
    "Open approval requests, waits of agents, and actions of operators.",
    METRICS + STORED,
    row(
        "Overview",
        panel(
            "Open approval requests",
            "stat",
            "Calls that wait for an approval.",
            sql(f"select count(*) as open from callgate.approvals where status = 'pending' and {OF}"),
            wide=6,
            high=4,
            steps=[(10, "look")],
            runbook="CallgateApprovalOld",
        ),
        panel(
            "Oldest approval request",
            "stat",
            "Age of the oldest open approval request; 0 without one.",
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
            "Requests per second",
            "stat",
            "ASK verdicts per second.",
            prom(f'sum(rate(callgate_evaluations_total{{callgate_decision="ASK",$of}}{RATE}))'),
            unit="ops",
            wide=6,
            high=4,
        ),
        panel(
            "Answered in time",
            "stat",
            "Share of the ended approval requests of the selected time that were approved or denied. The others "
            "expired, which counts as a denial.",
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
        "From metrics",
        panel(
            "Open requests and waiting sessions",
            "timeseries",
            "Open approval requests of all tenants, and sessions that wait for one.",
            prom("max(callgate_approvals_open{$of})", "requests"),
            prom("max(callgate_approvals_sessions{$of})", "sessions"),
            runbook="CallgateApprovalOld",
        ),
        panel(
            "Age of the oldest request",
            "timeseries",
            "Age of the oldest open approval request of all tenants.",
            prom("max(callgate_approvals_oldest_seconds{$of})", "oldest"),
            unit="s",
            steps=[(1800, "look")],
            runbook="CallgateApprovalOld",
        ),
        panel(
            "Wait, by answer",
            "timeseries",
            "90th percentile of the time from an approval request to its answer.",
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
            "Waiting for approval",
            "table",
            "Oldest first. Answer with `callgate approvals approve ID` or `deny ID`.",
            sql(f"""select asked_at, expires_at, tool, left(arguments, 200) as arguments, justification, rule, message,
                  agent_id, session_id, approval_id, tenant_id from callgate.approvals where status = 'pending' and {OF}
                  order by asked_at limit 100"""),
            wide=24,
            high=9,
            runbook="CallgateApprovalOld",
        ),
    ),
    row(
        "History",
        panel(
            "Requests by result",
            "timeseries",
            "Approval requests by result, over time.",
            sql(
                f"""select $__timeGroup(asked_at, $__interval) as time, status as metric, count(*) as requests
                  from callgate.approvals where $__timeFilter(asked_at) and {OF} group by 1, 2 order by 1""",
                series=True,
            ),
            wide=8,
            stack=True,
        ),
        panel(
            "Wait for an answer",
            "timeseries",
            "Median and 90th percentile of the time from an approval request to its answer, by time of the request.",
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
            "Tools and rules with most approval requests, and the share of approvals. Calls that are always approved, "
            "or always denied, need no approval request.",
            sql(f"""select tool, rule, count(*) as asked, count(*) filter (where status = 'approved') as approved,
                  count(*) filter (where status = 'denied') as denied, count(*) filter (where status = 'expired') as expired,
                  avg(waited_ms) as mean_wait_ms, tenant_id from callgate.approvals where $__timeFilter(asked_at) and {OF}
                  group by tenant_id, tool, rule order by asked desc limit 50"""),
            wide=8,
            units={"mean_wait_ms": "ms"},
        ),
    ),
    row(
        "Actions of operators",
        panel(
            "Halts in force",
            "timeseries",
            "Halts of all tenants, by scope: the kill switch.",
            prom("max by (callgate_halt_kind) (callgate_halts{$of})", "{{callgate_halt_kind}}"),
            wide=24,
            high=6,
            runbook="CallgateHalted",
        ),
        panel(
            "Answers, halts, grants, phases, policies",
            "table",
            "All actions of operators, with author and reason.",
            sql(f"""select at, actor, kind, session_id, subject, reason, detail, tenant_id from callgate.operator_events
                  where $__timeFilter(at) and {OF} order by at desc limit 200"""),
            wide=16,
            high=9,
        ),
        panel(
            "Policy activations",
            "table",
            "Active policies over time, with the author of each activation.",
            sql(f"""select revision, activated_at, replaced_at, activated_by, note, policy_version, tenant_id
                  from callgate.policy_activations where {OF} order by activated_at desc limit 50"""),
            wide=8,
            high=9,
            runbook="CallgatePolicyBehind",
        ),
    ),
)
