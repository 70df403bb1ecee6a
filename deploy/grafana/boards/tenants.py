"""Per tenant: use and results of each tenant."""

from panels import METRICS, STORED, board, panel, prom, row, sql

OF = "tenant_id in ($tenant)"
DAYS = "day between ($__timeFrom()::timestamptz at time zone 'utc')::date and ($__timeTo()::timestamptz at time zone 'utc')::date"

BOARD = board(
    "tenants",
    "per tenant",
    "Use and results of each tenant.",
    METRICS + STORED,
    row(
        "Overview",
        panel(
            "Tenants",
            "table",
            "Judgements of the selected days by tenant, and their decisions.",
            sql(f"""select tenant_id, sum(calls)::bigint as judged,
                  coalesce(sum(calls) filter (where decision = 'ALLOW'), 0)::float8 / sum(calls) as allowed,
                  coalesce(sum(calls) filter (where decision = 'DENY'), 0)::bigint as denied,
                  coalesce(sum(calls) filter (where decision = 'STOP'), 0)::bigint as stopped,
                  coalesce(sum(calls) filter (where decision = 'ASK'), 0)::bigint as asked,
                  coalesce(sum(calls) filter (where decision = 'REUSE'), 0)::bigint as reused
                  from callgate.decisions_by_rule where {OF} and {DAYS} group by tenant_id order by judged desc"""),
            wide=12,
            high=8,
            units={"allowed": "percentunit"},
        ),
        panel(
            "Cost by tenant",
            "table",
            "Sessions with an event in the selected time, and their total cost.",
            sql(f"""select tenant_id, count(*) as sessions, sum(calls)::bigint as calls, sum(tokens)::bigint as tokens,
                  sum(cost_micros) / 1e6 as usd from callgate.session_costs where {OF} and $__timeFilter(last_at)
                  group by tenant_id order by usd desc"""),
            wide=12,
            high=8,
            units={"usd": "currencyUSD"},
        ),
    ),
    row(
        "Over time",
        panel(
            "Verdicts per second",
            "timeseries",
            "By tenant, from metrics: fifty tenants by number, the rest as `_OTHER`.",
            prom(
                "sum by (callgate_tenant) (rate(callgate_tenant_evaluations_total{$of}[$__rate_interval]))",
                "{{callgate_tenant}}",
            ),
            unit="ops",
            wide=12,
        ),
        panel(
            "Share refused",
            "timeseries",
            "Share of DENY and STOP in each tenant's verdicts.",
            prom(
                'sum by (callgate_tenant) (rate(callgate_tenant_evaluations_total{callgate_decision=~"DENY|STOP",$of}'
                "[$__rate_interval])) / sum by (callgate_tenant) "
                "(rate(callgate_tenant_evaluations_total{$of}[$__rate_interval]))",
                "{{callgate_tenant}}",
            ),
            unit="percentunit",
            wide=12,
            least=0,
            most=1,
            runbook="CallgateRefusalSpike",
        ),
        panel(
            "Judged calls",
            "timeseries",
            "Calls by tenant and time of their last judgement.",
            sql(
                f"""select $__timeGroup(judged_at, $__interval) as time, tenant_id::text as metric, count(*) as calls
                  from callgate.tool_call where {OF} and $__timeFilter(judged_at) group by 1, 2 order by 1""",
                series=True,
            ),
            wide=12,
        ),
        panel(
            "Refused calls",
            "timeseries",
            "Calls by tenant whose last decision was not ALLOW.",
            sql(
                f"""select $__timeGroup(judged_at, $__interval) as time, tenant_id::text as metric,
                  count(*) filter (where decision <> 'ALLOW') as refused from callgate.tool_call
                  where {OF} and $__timeFilter(judged_at) group by 1, 2 order by 1""",
                series=True,
            ),
            wide=12,
            runbook="CallgateRefusalSpike",
        ),
    ),
    row(
        "Details of the selected tenants",
        panel(
            "Decisions by rule",
            "table",
            "Decisions by rule and day, with the share that was enforced.",
            sql(f"""select tenant_id, day, rule, decision, would, calls, enforced_share from callgate.decisions_by_rule
                  where {OF} and {DAYS} and rule is not null order by day desc, calls desc limit 200"""),
            wide=12,
            high=9,
            units={"enforced_share": "percentunit"},
        ),
        panel(
            "Agents",
            "table",
            "Calls, refusals and failures by agent in the selected time.",
            sql(f"""select tenant_id, agent_id, count(*) as calls, count(*) filter (where decision <> 'ALLOW') as refused,
                  count(*) filter (where outcome = 'error') as failed, sum(cost_micros) / 1e6 as usd from callgate.tool_call
                  where {OF} and $__timeFilter(judged_at) group by tenant_id, agent_id order by calls desc limit 100"""),
            wide=12,
            high=9,
            units={"usd": "currencyUSD"},
        ),
        panel(
            "Halts",
            "table",
            "Halts in force, or created in the selected time.",
            sql(f"""select tenant_id, kind, name, halted_at, halted_by, reason, resumed_at, resumed_by, holds
                  from callgate.halts where {OF} and (holds or $__timeFilter(halted_at)) order by halted_at desc"""),
            wide=12,
            runbook="CallgateHalted",
        ),
        panel(
            "Open approval requests",
            "table",
            "Open approval requests by tenant.",
            sql(f"""select tenant_id, count(*) filter (where status = 'pending') as open,
                  coalesce(max(extract(epoch from now() - asked_at)) filter (where status = 'pending'), 0) as oldest,
                  count(*) as asked from callgate.approvals where {OF} group by tenant_id order by open desc"""),
            wide=12,
            units={"oldest": "s"},
            runbook="CallgateApprovalOld",
        ),
    ),
    since="now-24h",
    refresh="5m",
)
