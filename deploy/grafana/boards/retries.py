"""Retry profiles: what waiting buys, whether the chances that agents are told come true, and what retries cost."""

from panels import METRICS, STORED, board, panel, prom, row, sql, variable

RATE = "[$__rate_interval]"
DAYS = "day between ($__timeFrom()::timestamptz at time zone 'utc')::date and ($__timeTo()::timestamptz at time zone 'utc')::date"
CHOICES = [
    variable(
        "tool",
        "Tool",
        "select distinct tool from callgate.retry_profiles where tenant_id in ($tenant) order by 1",
        "A tool whose failures were retried in the last 40 days.",
        several=False,
    ),
    variable(
        "failure",
        "Failure",
        "select distinct failure from callgate.retry_profiles where tenant_id in ($tenant) and "
        "tool = '$tool' order by 1",
        "A kind of failure of that tool.",
        several=False,
    ),
]
OF = "where tenant_id in ($tenant) and tool = '$tool' and failure = '$failure' and attempt = 1"


def calibration(which):
    return f"""select '≥ ' || ((decile - 1) * 10) || ' %' as told, sum(predicted * trials) / sum(trials) as predicted,
        sum(observed * trials) / sum(trials) as observed, sum(trials)::bigint as trials from callgate.retry_calibration
        where tenant_id in ($tenant) and chance = 'told' and {which} group by decile order by decile"""


BOARD = board(
    "retries",
    "retry profiles",
    "What waiting buys, whether the chances that agents are told come true, and what retries cost.",
    METRICS + STORED + CHOICES,
    row(
        "What waiting buys: $tool after $failure",
        panel(
            "Wait curve, by state of the tool",
            "trend",
            "The chance that a first retry does not fail, by the wait before "
            "it. A rising curve is a limit or a lock that time opens: wait. A flat one passes at once or never.",
            sql(f"""select wait_s, avg(p) filter (where tool_state = 'working') as working,
                  avg(p) filter (where tool_state = 'failing') as failing, avg(p) filter (where tool_state = 'down') as down
                  from callgate.retry_profiles {OF} group by wait_s order by wait_s"""),
            x="wait_s",
            unit="percentunit",
            wide=12,
            high=9,
            least=0,
            most=1,
            units={"wait_s": "s"},
        ),
        panel(
            "How sure that is, while the tool works",
            "trend",
            "The same chance with the ends of its 90 % interval. Wide "
            "apart: it says more about other tools than about this one.",
            sql(f"""select wait_s, avg(p_low) as low, avg(p) as chance, avg(p_high) as high from callgate.retry_profiles
                  {OF} and tool_state = 'working' group by wait_s order by wait_s"""),
            x="wait_s",
            unit="percentunit",
            wide=12,
            high=9,
            least=0,
            most=1,
            units={"wait_s": "s"},
        ),
    ),
    row(
        "Every profile",
        panel(
            "What a first retry is worth",
            "table",
            "The wait that pays best for each tool and failure while the tool "
            "works: a success is worth 1, a retry costs 0.15, a second 0.0008. Below 0 it costs more than it brings.",
            sql("""select distinct on (tenant_id, tool, failure) tool, failure, wait_s as best_wait_s, p, p_low, p_high,
                  p - 0.15 - 0.0008 * wait_s as worth, confidence, trials, tenant_id from callgate.retry_profiles
                  where attempt = 1 and tool_state = 'working' and tenant_id in ($tenant)
                  order by tenant_id, tool, failure, p - 0.0008 * wait_s desc, wait_s"""),
            wide=24,
            high=9,
            units={"best_wait_s": "s", "p": "percentunit", "p_low": "percentunit", "p_high": "percentunit"},
        ),
    ),
    row(
        "Calibration",
        panel(
            "Told and come true",
            "barchart",
            "Retries by the tenth of the chance that was told: what was predicted, and "
            "the share that did not fail. Bars of unequal height, with many trials, are a wrong estimate.",
            sql(calibration("not probe")),
            x="told",
            unit="percentunit",
            wide=12,
            high=9,
            hide=["trials"],
            least=0,
            most=1,
        ),
        panel(
            "Trials behind it",
            "barchart",
            "How many retries each of these tenths rests on.",
            sql("""select '≥ ' || ((decile - 1) * 10) || ' %' as told, coalesce(sum(trials) filter (where not probe), 0)::bigint
                  as advised, coalesce(sum(trials) filter (where probe), 0)::bigint as probes from callgate.retry_calibration
                  where tenant_id in ($tenant) and chance = 'told' group by decile order by decile"""),
            x="told",
            wide=6,
            high=9,
        ),
        panel(
            "Probes and the others",
            "table",
            "Probes are retries against the estimate, drawn at random: when they succeed "
            "far more often than predicted, retries that would have worked are being suppressed.",
            sql("""select case when probe then 'probe' else 'advised or own' end as retries, sum(trials)::bigint as trials,
                  sum(predicted * trials) / sum(trials) as predicted, sum(observed * trials) / sum(trials) as observed
                  from callgate.retry_calibration where chance = 'told' and tenant_id in ($tenant) group by probe"""),
            wide=6,
            high=9,
            units={"predicted": "percentunit", "observed": "percentunit"},
        ),
    ),
    row(
        "Advice",
        panel(
            "Followed, and right?",
            "timeseries",
            "Retries a second whose outcome is known: what had been advised, and "
            "whether they worked. Advice against a retry is right where retries fail.",
            prom(
                f"sum by (callgate_retryable, callgate_retry_ok) (rate(callgate_retries_total{{$of}}{RATE}))",
                "advised {{callgate_retryable}}, worked {{callgate_retry_ok}}",
            ),
            unit="ops",
            wide=12,
        ),
        panel(
            "Chance told, by what came",
            "timeseries",
            "The median chance that was told for retries that worked, and for those that did not: far apart is well.",
            prom(
                f"histogram_quantile(0.5, sum by (le, callgate_retry_ok) (rate(callgate_retry_predicted_bucket{{$of}}{RATE})))",
                "worked {{callgate_retry_ok}}",
            ),
            unit="percentunit",
            wide=12,
            least=0,
            most=1,
        ),
        panel(
            "Advice a second",
            "timeseries",
            "Answers to failures by whether a retry was advised. Probes are retries that "
            "were allowed against the estimate, to learn.",
            prom(
                f"sum by (callgate_retryable, callgate_retry_probe) (rate(callgate_advice_total{{$of}}{RATE}))",
                "retry {{callgate_retryable}}, probe {{callgate_retry_probe}}",
            ),
            unit="ops",
        ),
        panel(
            "On what it rests",
            "timeseries",
            "Advice a second by what the chance rests on: this very case (cell), the "
            "tool, the kind of failure, or nothing yet (prior).",
            prom(
                f"sum by (callgate_retry_basis) (rate(callgate_advice_total{{$of}}{RATE}))", "{{callgate_retry_basis}}"
            ),
            unit="ops",
            stack=True,
        ),
        panel(
            "By failure",
            "timeseries",
            "Advice a second by what had gone wrong.",
            prom(
                f"sum by (callgate_failure_kind) (rate(callgate_advice_total{{$of}}{RATE}))",
                "{{callgate_failure_kind}}",
            ),
            unit="ops",
            stack=True,
        ),
    ),
    row(
        "What retries cost",
        panel(
            "Wasted retries",
            "table",
            "Retries with the same arguments that failed again, in the chosen time. Where most "
            "were against the advice, callers retry by themselves: mend the client.",
            sql(f"""select tool, failure, sum(retries)::bigint as retries, sum(wasted)::bigint as wasted,
                  sum(wasted) / sum(retries) as wasted_share, sum(against_advice)::bigint as against_advice,
                  sum(cost_micros) / 1e6 as wasted_usd, sum(tokens)::bigint as tokens, sum(lost_ms)::float8 / 1000 as lost_s
                  from callgate.wasted_retries where tenant_id in ($tenant) and {DAYS} group by tool, failure
                  order by sum(wasted) desc limit 100"""),
            wide=24,
            high=8,
            units={"wasted_share": "percentunit", "wasted_usd": "currencyUSD", "lost_s": "s"},
        ),
    ),
    since="now-24h",
    refresh="5m",
)
