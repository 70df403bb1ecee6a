"""Fleet: what the agents do, and what the gate says to it."""

from panels import METRICS, STORED, board, panel, prom, row, sql

RATE = "[$__rate_interval]"
CALLS = f"sum(rate(callgate_evaluations_total{{$of}}{RATE}))"

BOARD = board(
    "fleet",
    "fleet",
    "What the agents ask for, what the gate answers, and what comes of it.",
    METRICS + STORED,
    row(
        "Now",
        panel(
            "Verdicts a second",
            "stat",
            "How many calls the agents ask about, over the chosen replicas.",
            prom(CALLS),
            unit="ops",
            wide=4,
            high=4,
        ),
        panel(
            "Let through",
            "stat",
            "Share of the verdicts that are ALLOW. A sudden fall is a policy, a halt or a tool that broke.",
            prom(f'sum(rate(callgate_evaluations_total{{callgate_decision="ALLOW",$of}}{RATE})) / {CALLS}'),
            unit="percentunit",
            wide=4,
            high=4,
            runbook="CallgateRefusalSpike",
        ),
        panel(
            "Stopped",
            "stat",
            "Verdicts a second that end a run: STOP. Agents give their final answer then.",
            prom(f'sum(rate(callgate_evaluations_total{{callgate_decision="STOP",$of}}{RATE})) or vector(0)'),
            unit="ops",
            wide=4,
            high=4,
            steps=[(1, "look")],
            runbook="CallgateStopSpike",
        ),
        panel(
            "Reports that failed",
            "stat",
            "Share of the reported outcomes that are errors of the tools.",
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
            "How long the slowest hundredth of the agents waits for a verdict, its commit included.",
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
            "Sessions at work",
            "stat",
            "Sessions with an event in the last hour or a call that is still open, of the chosen tenants.",
            sql("select count(*) as sessions from callgate.sessions_now where tenant_id in ($tenant)"),
            wide=4,
            high=4,
        ),
    ),
    row(
        "What the gate says",
        panel(
            "Decisions",
            "timeseries",
            "Verdicts a second by decision, as the policy would have them: with shadow mode "
            "a refusal may have been let through.",
            prom(
                f"sum by (callgate_decision) (rate(callgate_evaluations_total{{$of}}{RATE}))", "{{callgate_decision}}"
            ),
            unit="ops",
            stack=True,
            of="decision",
            wide=12,
        ),
        panel(
            "Which rules refuse",
            "timeseries",
            "Refusals a second by the rule that decided. A rule's section in docs/semantics.md says when it fires.",
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
            "Why",
            "timeseries",
            "Refusals a second by the stable reason that the model is told.",
            prom(
                'topk(12, sum by (callgate_reason) (rate(callgate_evaluations_total{callgate_decision!="ALLOW",$of}'
                f"{RATE})))",
                "{{callgate_reason}}",
            ),
            unit="ops",
            wide=12,
        ),
        panel(
            "What rules had to say",
            "timeseries",
            "Findings a second by rule, whether they decided or a stricter one did.",
            prom(f"topk(12, sum by (callgate_rule) (rate(callgate_findings_total{{$of}}{RATE})))", "{{callgate_rule}}"),
            unit="ops",
            wide=12,
        ),
        panel(
            "Only watched",
            "timeseries",
            "Refusals a second that shadow mode did not apply: what enforcing would do.",
            prom(
                f'sum by (callgate_rule) (rate(callgate_evaluations_total{{callgate_mode="shadow",$of}}{RATE}))',
                "{{callgate_rule}}",
            ),
            unit="ops",
            wide=12,
        ),
    ),
    row(
        "What comes of it",
        panel(
            "Outcomes",
            "timeseries",
            "Reports a second by outcome. `unknown` may or may not have happened.",
            prom(f"sum by (callgate_outcome) (rate(callgate_records_total{{$of}}{RATE}))", "{{callgate_outcome}}"),
            unit="ops",
            stack=True,
        ),
        panel(
            "Failures by kind",
            "timeseries",
            "Failed reports a second by what went wrong.",
            prom(
                f'sum by (callgate_failure_kind) (rate(callgate_records_total{{callgate_failure_kind!="none",$of}}{RATE}))',
                "{{callgate_failure_kind}}",
            ),
            unit="ops",
            runbook="CallgateToolFailing",
        ),
        panel(
            "Tools with most calls",
            "timeseries",
            "Verdicts a second of the ten tools that are asked for most. "
            "`_OTHER` are those that no policy declares, and those past a hundred.",
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
            "At work",
            "table",
            "Sessions with an event in the last hour or an open call: the dearest call trees first.",
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
            "How many sessions are in which state.",
            sql("""select state, count(*) as sessions from callgate.sessions_now where tenant_id in ($tenant)
                  group by state order by sessions desc"""),
            x="state",
        ),
        panel(
            "Halts that hold",
            "table",
            "What is halted now, by whom and why: the kill switch.",
            sql("""select kind, name, halted_at, halted_by, reason, tenant_id from callgate.halts
                  where holds and tenant_id in ($tenant) order by halted_at desc"""),
            wide=16,
            runbook="CallgateHalted",
        ),
    ),
)
