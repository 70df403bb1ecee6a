"""Tool quality: tools that cause retries, loops and repeated calls, and their fixes."""

from panels import METRICS, STORED, board, panel, prom, row, sql

RATE = "[$__rate_interval]"
DAYS = "day between ($__timeFrom()::timestamptz at time zone 'utc')::date and ($__timeTo()::timestamptz at time zone 'utc')::date"
OF = f"from callgate.tool_quality where tenant_id in ($tenant) and {DAYS}"

BOARD = board(
    "tool-quality",
    "tool quality",
    "Tools that cause retries, loops and repeated calls, and their fixes.",
    METRICS + STORED,
    row(
        "Tools to fix",
        panel(
            "Tools by avoidable calls",
            "table",
            "One row per tool and day in the selected time, with its rates and the design problem of the highest one.",
            sql(f"""select tool, day, calls, worst, design_problem, failure_rate, retry_rate, loop_rate, duplicate_rate,
                  validation_failure_rate, coercion_rate, unknown_outcome_rate, missing_is_complete_rate, raw_error_rate,
                  censored_rate, tenant_id
                  {OF} order by retries + loops + duplicates + bad_arguments + coercions + unknown_outcomes desc, calls desc
                  limit 200"""),
            wide=24,
            high=11,
            unit="short",
            units={
                name: "percentunit"
                for name in (
                    "failure_rate",
                    "retry_rate",
                    "loop_rate",
                    "duplicate_rate",
                    "validation_failure_rate",
                    "coercion_rate",
                    "unknown_outcome_rate",
                    "missing_is_complete_rate",
                    "raw_error_rate",
                    "censored_rate",
                )
            },
        ),
        panel(
            "Avoidable calls",
            "barchart",
            "Retries, loops, repetitions, invalid arguments and unknown outcomes by tool in the selected time.",
            sql(f"""select tool, sum(retries)::bigint as retries, sum(loops)::bigint as loops,
                  sum(duplicates)::bigint as duplicates, sum(bad_arguments)::bigint as bad_arguments,
                  sum(unknown_outcomes)::bigint as unknown_outcomes
                  {OF} group by tool order by sum(retries + loops + duplicates + bad_arguments) desc limit 15"""),
            x="tool",
            wide=24,
        ),
    ),
    row(
        "Descriptions",
        panel(
            "Changed descriptions",
            "timeseries",
            "Descriptions of the tools of MCP servers that have changed, and that nobody has accepted or rejected.",
            prom("max by (callgate_tenant) (callgate_tools_changed{$of})", "tenant {{callgate_tenant}}"),
            wide=24,
            least=0,
            runbook="CallgateToolChanged",
        ),
    ),
    row(
        "Failures",
        panel(
            "Failures per second, by tool",
            "timeseries",
            "Failed reports per second of the ten worst tools.",
            prom(
                f'topk(10, sum by (gen_ai_tool_name) (rate(callgate_records_total{{callgate_outcome="error",$of}}{RATE})))',
                "{{gen_ai_tool_name}}",
            ),
            unit="ops",
            wide=12,
            runbook="CallgateToolFailing",
        ),
        panel(
            "Share of failed reports, by tool",
            "timeseries",
            "Share of failures in each tool's reports.",
            prom(
                f'sum by (gen_ai_tool_name) (rate(callgate_records_total{{callgate_outcome="error",$of}}{RATE}))'
                f" / sum by (gen_ai_tool_name) (rate(callgate_records_total{{$of}}{RATE}))",
                "{{gen_ai_tool_name}}",
            ),
            unit="percentunit",
            wide=12,
            least=0,
            most=1,
            steps=[(0.5, "bad")],
            runbook="CallgateToolFailing",
        ),
    ),
    row(
        "Arguments",
        panel(
            "Coerced arguments",
            "timeseries",
            "Calls per second with arguments that were coerced to the type of the "
            "schema: give the field the type that models write.",
            prom(f"sum by (gen_ai_tool_name) (rate(callgate_coercions_total{{$of}}{RATE}))", "{{gen_ai_tool_name}}"),
            unit="ops",
        ),
        panel(
            "Fields with invalid values",
            "table",
            "Refusals for arguments of the last 14 days, and the share that "
            "the model corrected itself. A field with a low share needs a better description or an example.",
            sql("""select tool, field, rule as violated, refusals, corrected::float8 / refusals as corrected_share,
                  tenant_id from callgate.self_corrections where tenant_id in ($tenant)
                  order by refusals desc limit 100"""),
            units={"corrected_share": "percentunit"},
        ),
        panel(
            "Coerced fields",
            "table",
            "Coerced values, by field.",
            sql(f"""select tool, field, sum(calls)::bigint as calls, tenant_id from callgate.coercions
                  where tenant_id in ($tenant) and {DAYS} group by tool, field, tenant_id order by calls desc limit 100"""),
        ),
        panel(
            "Unknown tools",
            "table",
            "Names that models invent: add the tool, or state its purpose in the nearest tool's description.",
            sql("""select tool, calls, sessions, agents, told, first_at, last_at, tenant_id from callgate.unknown_tools
                  where tenant_id in ($tenant) order by calls desc limit 100"""),
            wide=24,
        ),
    ),
    row(
        "Repeated calls and unknown outcomes",
        panel(
            "Reused results",
            "table",
            "Repeated calls that got a previous result.",
            sql("""select tool, left(arguments, 200) as arguments, count(*) as repeats,
                  count(distinct session_id) as sessions, max(judged_at) as last_at, tenant_id from callgate.tool_call
                  where reason = 'duplicate_call_blocked' and $__timeFilter(judged_at) and tenant_id in ($tenant)
                  group by tenant_id, tool, arguments order by repeats desc limit 50"""),
            wide=12,
        ),
        panel(
            "Writes with unknown outcome",
            "table",
            "Writes that timed out, lost their connection, or have no "
            "report. An operator checks and settles each (callgate sessions settle).",
            sql("""select judged_at, tool, resource, failure, error_message, session_id, call_id, tenant_id
                  from callgate.tool_call where outcome = 'unknown' and effect = 'write' and tenant_id in ($tenant)
                  order by judged_at desc limit 100"""),
            wide=12,
            runbook="CallgateLeasesExpiring",
        ),
    ),
    since="now-24h",
    refresh="5m",
)
