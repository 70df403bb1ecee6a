"""Loops and budgets: sessions that loop, and their cost."""

from panels import METRICS, STORED, board, panel, prom, row, sql

RATE = "[$__rate_interval]"
AT = "$__timeFilter(judged_at) and tenant_id in ($tenant)"

BOARD = board(
    "loops",
    "loops and budgets",
    "Sessions that loop, levels of loops, and costs.",
    METRICS + STORED,
    row(
        "Loops",
        panel(
            "Loops per second, by detector",
            "timeseries",
            "Findings of loop detectors per second, deciding or not.",
            prom(f"sum by (callgate_rule) (rate(callgate_loops_total{{$of}}{RATE}))", "{{callgate_rule}}"),
            unit="ops",
            stack=True,
            wide=12,
            runbook="CallgateLoopSpike",
        ),
        panel(
            "Loops by level",
            "timeseries",
            "A warning runs the call with a hint, `critical` refuses it, `break` "
            "refuses the rest of the run. The model heeded a warning if the loop ended with it.",
            prom(f"sum by (callgate_level) (rate(callgate_loops_total{{$of}}{RATE}))", "{{callgate_level}}"),
            unit="ops",
            stack=True,
            wide=12,
            runbook="CallgateLoopSpike",
        ),
        panel(
            "Looping sessions",
            "table",
            "Sessions with loops in the selected time, by detector and level.",
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
            "Ends of loops",
            "barchart",
            "Sessions by detector and highest level: the model itself ended a loop that "
            "ended as a warning.",
            sql(f"""select rule, count(*) filter (where furthest = 1) as left_after_warning,
                  count(*) filter (where furthest = 2) as refused, count(*) filter (where furthest = 3) as broken from (
                  select rule, session_id, max(case level when 'warning' then 1 when 'critical' then 2 else 3 end) as furthest
                  from callgate.findings where is_loop and {AT} group by tenant_id, rule, session_id, run_from) x
                  group by rule order by rule"""),
            x="rule",
            high=9,
        ),
        panel(
            "After a refused loop",
            "table",
            "First event of sessions after the last refusal of a loop. Another call is the purpose of a refusal. "
            "Without a call for ten minutes, the agent has stopped (deploy/sql/loops_ended.sql).",
            sql(f"""with refused as (
                  select tenant_id, session_id, run_from, rule, max(judged_at) as at, count(*) as refusals,
                    (array_agg(call_id order by judged_at desc))[1] as call_id
                  from callgate.findings where is_loop and enforced and decision in ('DENY', 'STOP') and {AT}
                  group by tenant_id, session_id, run_from, rule)
                  select r.rule, case
                    when exists (select from callgate.halts h where h.tenant_id = r.tenant_id and h.kind = 'session'
                      and h.name = r.session_id and h.halted_at > r.at
                      and h.halted_at < coalesce(n.judged_at, 'infinity')) then 'halted by a person'
                    when n.decision is null and r.at > now() - interval '10 minutes' then 'not known yet'
                    when n.decision is null then 'stopped'
                    when n.decision = 'ASK' then 'asked a person'
                    when n.decision in ('DENY', 'STOP') then 'refused otherwise'
                    when n.tool = l.tool and n.arguments = l.arguments then 'the same call, let through'
                    else 'another call' end as ended, count(*) as loops, round(avg(refusals), 1) as refusals
                  from refused r left join callgate.tool_call l
                    on l.tenant_id = r.tenant_id and l.session_id = r.session_id and l.call_id = r.call_id
                  left join lateral (select c.decision, c.tool, c.arguments, c.judged_at from callgate.tool_call c
                    where c.tenant_id = r.tenant_id and c.session_id = r.session_id and c.judged_at > r.at
                    and not c.observed order by c.judged_at limit 1) n on true
                  group by 1, 2 order by rule, loops desc"""),
            wide=12,
            runbook="CallgateLoopSpike",
        ),
        panel(
            "Sessions stopped",
            "timeseries",
            "Sessions of the whole database that got a STOP within the last hour, and no other verdict since.",
            prom("max(callgate_sessions_stopped{$of})", "stopped"),
            prom("max(callgate_approvals_sessions{$of})", "waiting for approval"),
            prom('max(callgate_halts{callgate_halt_kind="session",$of})', "halted"),
            wide=12,
            runbook="CallgateStopSpike",
        ),
    ),
    row(
        "Budgets",
        panel(
            "Use of budgets",
            "timeseries",
            "90th percentile of the used share of a limit after a verdict, by scope and limit. From 0.8 on models get "
            "a hint, and at 1 the limit is used up.",
            prom(
                "histogram_quantile(0.9, sum by (le, callgate_budget_scope, callgate_budget) "
                f"(rate(callgate_budget_used_bucket{{$of}}{RATE})))",
                "{{callgate_budget_scope}}: {{callgate_budget}}",
            ),
            unit="percentunit",
            least=0,
            steps=[(0.8, "look"), (0.99, "bad")],
            wide=12,
        ),
        panel(
            "Calls near a limit",
            "timeseries",
            "Share of verdicts after which more than 80 % of a limit is used.",
            prom(
                "1 - sum by (callgate_budget_scope, callgate_budget) "
                f'(rate(callgate_budget_used_bucket{{le="0.8",$of}}{RATE})) / '
                f"sum by (callgate_budget_scope, callgate_budget) (rate(callgate_budget_used_count{{$of}}{RATE}))",
                "{{callgate_budget_scope}}: {{callgate_budget}}",
            ),
            unit="percentunit",
            least=0,
            most=1,
            wide=12,
        ),
        panel(
            "Findings of budgets and rates",
            "timeseries",
            "Findings per second, deciding or not: hints near a limit, and refusals.",
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
            "Findings per second of a used-up or missing grant.",
            prom(
                f'sum by (callgate_rule) (rate(callgate_findings_total{{callgate_reason="grant_exceeded",$of}}{RATE}))',
                "{{callgate_rule}}",
            ),
            unit="ops",
            wide=12,
        ),
        panel(
            "Refusals for a budget",
            "timeseries",
            "Refusals per second by a budget, a grant or a rate limit of the policy.",
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
            "Refusals for a budget, by limit",
            "table",
            "Refusals by budgets in the selected time, with the message that names the limit.",
            sql(f"""select rule, reason, decision, left(message, 120) as said, count(*) as times,
                  count(distinct session_id) as sessions, max(judged_at) as last_at, tenant_id from callgate.findings
                  where rule in ('budget', 'growth', 'tier') and decision <> 'ALLOW' and {AT}
                  group by tenant_id, rule, reason, decision, left(message, 120) order by times desc limit 50"""),
            wide=12,
        ),
        panel(
            "Cost by call tree",
            "table",
            "Call trees with an event in the selected time, most expensive first.",
            sql("""select root_id, count(*) as sessions, sum(calls)::bigint as calls, sum(tokens)::bigint as tokens,
                  sum(cost_micros) / 1e6 as usd, sum(cost_micros) / 1e6 / nullif(sum(calls), 0) as usd_per_call,
                  max(last_at) as last_at, tenant_id from callgate.session_costs
                  where tenant_id in ($tenant) group by tenant_id, root_id having $__timeFilter(max(last_at))
                  order by usd desc limit 50"""),
            wide=16,
            units={"usd": "currencyUSD", "usd_per_call": "currencyUSD"},
        ),
        panel(
            "Cost",
            "stat",
            "Total cost of the call trees with an event in the selected time.",
            sql("""select sum(cost_micros) / 1e6 as usd from callgate.session_costs
                  where tenant_id in ($tenant) and $__timeFilter(last_at)"""),
            unit="currencyUSD",
            high=4,
        ),
        panel(
            "Tokens",
            "stat",
            "Tokens of these call trees, of every kind.",
            sql("""select sum(tokens)::bigint as tokens from callgate.session_costs
                  where tenant_id in ($tenant) and $__timeFilter(last_at)"""),
            high=4,
        ),
    ),
)
