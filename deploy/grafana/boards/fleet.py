"""Fleet: calls of agents, decisions and outcomes."""

from panels import METRICS, STORED, board, panel, prom, row, sql

RATE = "[$__rate_interval]"
CALLS = f"sum(rate(callgate_evaluations_total{{$of}}{RATE}))"

BOARD = board(
    "fleet",
    "fleet",
    "Calls of agents, decisions and outcomes.",
    METRICS + STORED,
    row(
        "Overview",
        panel(
            "Verdicts per second",
            "stat",
            "Verdicts per second of the selected replicas.",
            prom(CALLS),
            unit="ops",
            wide=4,
            high=4,
        ),
        panel(
            "Allowed",
            "stat",
            "Share of ALLOW verdicts. A sudden fall is caused by a policy, a halt or a failing tool.",
            prom(f'sum(rate(callgate_evaluations_total{{callgate_decision="ALLOW",$of}}{RATE})) / {CALLS}'),
            unit="percentunit",
            wide=4,
            high=4,
            runbook="CallgateRefusalSpike",
        ),
        panel(
            "Stopped",
            "stat",
            "STOP verdicts per second. They end a run, and agents give their final answer.",
            prom(f'sum(rate(callgate_evaluations_total{{callgate_decision="STOP",$of}}{RATE})) or vector(0)'),
            unit="ops",
            wide=4,
            high=4,
            steps=[(1, "look")],
            runbook="CallgateStopSpike",
        ),
        panel(
            "Failed reports",
            "stat",
            "Share of reported outcomes that are errors of tools.",
            prom(
                f'sum(rate(callgate_records_total{{callgate_outcome="error",$of}}{RATE}))'
                f" / sum(rate(callgate_records_total{{$of}}{RATE}))"
            ),
            unit="percentunit",
            wide=4,
            high=4,
            steps=[(0.25, "look"), (0.5, "bad")],
            runbook="CallgateToolFailing",
        ),
        panel(
            "Evaluate, 99th percentile",
            "stat",
            "99th percentile of the time from a request to its committed verdict.",
            prom(
                f"histogram_quantile(0.99, sum by (le) (rate(callgate_evaluate_duration_seconds_bucket{{$of}}{RATE})))"
            ),
            unit="s",
            wide=4,
            high=4,
            steps=[(0.1, "look"), (0.5, "bad")],
            runbook="CallgateEvaluateSlow",
        ),
        panel(
            "Active sessions",
            "stat",
            "Sessions of the selected tenants with an event in the last hour or an open call.",
            sql("select count(*) as sessions from callgate.sessions_now where tenant_id in ($tenant)"),
            wide=4,
            high=4,
        ),
    ),
    row(
        "Decisions",
        panel(
            "Decisions",
            "timeseries",
            "Verdicts per second by the policy's decision. In shadow mode a refusal may have been allowed.",
            prom(
                f"sum by (callgate_decision) (rate(callgate_evaluations_total{{$of}}{RATE}))", "{{callgate_decision}}"
            ),
            unit="ops",
            stack=True,
            of="decision",
            wide=12,
        ),
        panel(
            "Refusals by rule",
            "timeseries",
            "Refusals per second by the deciding rule. docs/semantics.md has a section for each rule.",
            prom(
                f'sum by (callgate_rule) (rate(callgate_evaluations_total{{callgate_decision!="ALLOW",$of}}{RATE}))',
                "{{callgate_rule}}",
            ),
            unit="ops",
            stack=True,
            wide=12,
            runbook="CallgateRefusalSpike",
        ),
        panel(
            "Refusals by reason",
            "timeseries",
            "Refusals per second by their stable reason.",
            prom(
                'topk(12, sum by (callgate_reason) (rate(callgate_evaluations_total{callgate_decision!="ALLOW",$of}'
                f"{RATE})))",
                "{{callgate_reason}}",
            ),
            unit="ops",
            wide=12,
        ),
        panel(
            "Findings by rule",
            "timeseries",
            "Findings per second by rule, deciding or not.",
            prom(f"topk(12, sum by (callgate_rule) (rate(callgate_findings_total{{$of}}{RATE})))", "{{callgate_rule}}"),
            unit="ops",
            wide=12,
        ),
        panel(
            "Refusals in shadow mode",
            "timeseries",
            "Refusals per second that were not applied in shadow mode: the effect of enforcing them.",
            prom(
                f'sum by (callgate_rule) (rate(callgate_evaluations_total{{callgate_mode="shadow",$of}}{RATE}))',
                "{{callgate_rule}}",
            ),
            unit="ops",
            wide=12,
        ),
    ),
    row(
        "Outcomes",
        panel(
            "Outcomes",
            "timeseries",
            "Reports per second by outcome. Calls with `unknown` may have happened.",
            prom(f"sum by (callgate_outcome) (rate(callgate_records_total{{$of}}{RATE}))", "{{callgate_outcome}}"),
            unit="ops",
            stack=True,
        ),
        panel(
            "Failures by kind",
            "timeseries",
            "Failed reports per second by failure kind.",
            prom(
                f'sum by (callgate_failure_kind) (rate(callgate_records_total{{callgate_failure_kind!="none",$of}}{RATE}))',
                "{{callgate_failure_kind}}",
            ),
            unit="ops",
            runbook="CallgateToolFailing",
        ),
        panel(
            "Most called tools",
            "timeseries",
            "Verdicts per second of the ten most called tools. "
            "`_OTHER` are undeclared tools, and declared ones beyond a hundred.",
            prom(
                f"topk(10, sum by (gen_ai_tool_name) (rate(callgate_evaluations_total{{$of}}{RATE})))",
                "{{gen_ai_tool_name}}",
            ),
            unit="ops",
        ),
    ),
    row(
        "Sessions",
        panel(
            "Active",
            "table",
            "Sessions with an event in the last hour or an open call, most expensive call trees first.",
            sql("""select session_id, agent_id, state, last_tool, last_decision, last_reason, calls, refused, running,
                  pending_approvals, tree_cost_micros / 1e6 as tree_usd, tree_tokens, last_judged_at, tenant_id
                  from callgate.sessions_now where tenant_id in ($tenant)
                  order by tree_cost_micros desc, last_judged_at desc limit 100"""),
            wide=24,
            high=10,
            units={"tree_usd": "currencyUSD"},
        ),
        panel(
            "States",
            "barchart",
            "Number of sessions by state.",
            sql("""select state, count(*) as sessions from callgate.sessions_now where tenant_id in ($tenant)
                  group by state order by sessions desc"""),
            x="state",
        ),
        panel(
            "Halts in force",
            "table",
            "Halts in force, with author and reason: the kill switch.",
            sql("""select kind, name, halted_at, halted_by, reason, tenant_id from callgate.halts
                  where holds and tenant_id in ($tenant) order by halted_at desc"""),
            wide=16,
            runbook="CallgateHalted",
        ),
    ),
)
