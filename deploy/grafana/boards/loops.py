"""Loops and budgets: agents that go round in circles, and what they spend."""

from panels import METRICS, STORED, board, panel, prom, row, sql

RATE = "[$__rate_interval]"
AT = "$__timeFilter(judged_at) and tenant_id in ($tenant)"

BOARD = board(
    "loops",
    "loops and budgets",
    "Agents that go round in circles, how far they come, and what they spend.",
    METRICS + STORED,
    row(
        "Loops",
        panel(
            "Found a second, by detector",
            "timeseries",
            "What loop detectors found, whether it decided or not.",
            prom(f"sum by (callgate_rule) (rate(callgate_loops_total{{$of}}{RATE}))", "{{callgate_rule}}"),
            unit="ops",
            stack=True,
            wide=12,
            runbook="CallgateLoopSpike",
        ),
        panel(
            "How far they come",
            "timeseries",
            "Warnings let the call run with a hint, critical ones refuse it, breaks "
            "refuse the rest of the run. Loops that end as warnings were heeded.",
            prom(f"sum by (callgate_level) (rate(callgate_loops_total{{$of}}{RATE}))", "{{callgate_level}}"),
            unit="ops",
            stack=True,
            wide=12,
            runbook="CallgateLoopSpike",
        ),
        panel(
            "Sessions that went round in circles",
            "table",
            "By detector, and how far it came, in the chosen time.",
            sql(f"""select session_id, rule, min(tool) as tool, count(distinct tool) as tools,
                  count(*) filter (where level = 'warning') as warned, count(*) filter (where level = 'critical') as critical,
                  count(*) filter (where level = 'break') as broken, max(judged_at) as last_at, tenant_id
                  from callgate.findings where is_loop and {AT} group by tenant_id, session_id, rule
                  order by broken desc, critical desc, warned desc limit 100"""),
            wide=16,
            high=9,
            runbook="CallgateLoopSpike",
        ),
        panel(
            "How loops ended",
            "barchart",
            "Sessions by detector and the furthest level that they reached: a loop that "
            "ended as a warning was left by the model itself.",
            sql(f"""select rule, count(*) filter (where furthest = 1) as left_after_warning,
                  count(*) filter (where furthest = 2) as refused, count(*) filter (where furthest = 3) as broken from (
                  select rule, session_id, max(case level when 'warning' then 1 when 'critical' then 2 else 3 end) as furthest
                  from callgate.findings where is_loop and {AT} group by tenant_id, rule, session_id, run_from) x
                  group by rule order by rule"""),
            x="rule",
            high=9,
        ),
    ),
    row(
        "Budgets",
        panel(
            "What budgets and rates had to say",
            "timeseries",
            "Findings a second, whether they decided or not: hints that a limit is near, and refusals.",
            prom(
                f'sum by (callgate_rule, callgate_decision) (rate(callgate_findings_total{{callgate_rule=~"budget|growth",$of}}{RATE}))',
                "{{callgate_rule}}: {{callgate_decision}}",
            ),
            unit="ops",
            wide=12,
        ),
        panel(
            "Grants used up",
            "timeseries",
            "Findings a second that a grant is used up, or was never given.",
            prom(
                f'sum by (callgate_rule) (rate(callgate_findings_total{{callgate_reason="grant_exceeded",$of}}{RATE}))',
                "{{callgate_rule}}",
            ),
            unit="ops",
            wide=12,
        ),
        panel(
            "Refused for a budget",
            "timeseries",
            "Verdicts a second that a budget, a grant or a rate of the policy refused.",
            prom(
                'sum by (callgate_rule, callgate_reason) (rate(callgate_evaluations_total{callgate_rule=~"budget|tier|growth",'
                f'callgate_decision!="ALLOW",$of}}{RATE}))',
                "{{callgate_rule}}: {{callgate_reason}}",
            ),
            unit="ops",
            wide=12,
            runbook="CallgateStopSpike",
        ),
        panel(
            "Refusals for a budget, by what was used up",
            "table",
            "What budgets refused in the chosen time, with the text that says which one.",
            sql(f"""select rule, reason, decision, left(message, 120) as said, count(*) as times,
                  count(distinct session_id) as sessions, max(judged_at) as last_at, tenant_id from callgate.findings
                  where rule in ('budget', 'growth', 'tier') and decision <> 'ALLOW' and {AT}
                  group by tenant_id, rule, reason, decision, left(message, 120) order by times desc limit 50"""),
            wide=12,
        ),
        panel(
            "Where the money goes",
            "table",
            "Call trees with an event in the chosen time, the dearest first, with their sub-agents.",
            sql("""select root_id, count(*) as sessions, sum(calls)::bigint as calls, sum(tokens)::bigint as tokens,
                  sum(cost_micros) / 1e6 as usd, sum(cost_micros) / 1e6 / nullif(sum(calls), 0) as usd_per_call,
                  max(last_at) as last_at, tenant_id from callgate.session_costs
                  where tenant_id in ($tenant) group by tenant_id, root_id having $__timeFilter(max(last_at))
                  order by usd desc limit 50"""),
            wide=16,
            units={"usd": "currencyUSD", "usd_per_call": "currencyUSD"},
        ),
        panel(
            "Spent",
            "stat",
            "What the call trees with an event in the chosen time have cost since they began.",
            sql("""select sum(cost_micros) / 1e6 as usd from callgate.session_costs
                  where tenant_id in ($tenant) and $__timeFilter(last_at)"""),
            unit="currencyUSD",
            high=4,
        ),
        panel(
            "Tokens",
            "stat",
            "Tokens that they have used, of every kind.",
            sql("""select sum(tokens)::bigint as tokens from callgate.session_costs
                  where tenant_id in ($tenant) and $__timeFilter(last_at)"""),
            high=4,
        ),
    ),
)
