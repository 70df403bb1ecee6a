"""The plane itself: is it answering, and what holds it back."""

from panels import METRICS, board, panel, prom, row

RATE = "[$__rate_interval]"


def quantile(share, metric, by=""):
    by = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket{{$of}}{RATE})))"


BOARD = board(
    "plane",
    "the plane",
    "Is it answering, how fast, and what holds it back.",
    METRICS,
    row(
        "Is it answering",
        panel(
            "Replicas up",
            "stat",
            "Replicas that Prometheus can scrape.",
            prom("sum(up{$of})"),
            wide=3,
            high=4,
            runbook="CallgateReplicaDown",
        ),
        panel(
            "Database",
            "stat",
            "Of the replicas: the share that can store. Below 1, some answer UNAVAILABLE.",
            prom("avg(callgate_store_up{$of})"),
            unit="percentunit",
            wide=4,
            high=4,
            runbook="CallgateDatabaseDown",
        ),
        panel(
            "Requests a second",
            "stat",
            "Calls of all methods.",
            prom(f"sum(rate(rpc_server_call_duration_seconds_count{{$of}}{RATE}))"),
            unit="reqps",
            wide=3,
            high=4,
        ),
        panel(
            "Failed by the plane's fault",
            "stat",
            "Share of the calls that ended with UNAVAILABLE, DEADLINE_EXCEEDED, "
            "INTERNAL, ABORTED, UNKNOWN or DATA_LOSS.",
            prom(
                'sum(rate(rpc_server_call_duration_seconds_count{rpc_response_status_code=~"UNAVAILABLE|DEADLINE_EXCEEDED|'
                f'INTERNAL|ABORTED|UNKNOWN|DATA_LOSS",$of}}{RATE}))'
                f" / sum(rate(rpc_server_call_duration_seconds_count{{$of}}{RATE})) or vector(0)"
            ),
            unit="percentunit",
            wide=4,
            high=4,
            steps=[(0.001, "look"), (0.01, "bad")],
            runbook="CallgateErrorBudgetBurn",
        ),
        panel(
            "Evaluate, 99th percentile",
            "stat",
            "How long the slowest hundredth of the agents waits for a verdict.",
            prom(quantile(0.99, "callgate_evaluate_duration_seconds")),
            unit="s",
            wide=4,
            high=4,
            steps=[(0.1, "look"), (0.5, "bad")],
            runbook="CallgateEvaluateSlow",
        ),
        panel(
            "Waiting to be judged",
            "stat",
            "Evaluates that wait for their turn now.",
            prom("sum(callgate_admission_waiting{$of})"),
            wide=3,
            high=4,
            steps=[(64, "look"), (512, "bad")],
            runbook="CallgateQueueFilling",
        ),
        panel(
            "Policies behind",
            "stat",
            "By how many activations the oldest policy of a replica is behind the active one.",
            prom("max(callgate_policy_behind{$of})"),
            wide=3,
            high=4,
            steps=[(1, "look")],
            runbook="CallgatePolicyBehind",
        ),
    ),
    row(
        "Requests",
        panel(
            "By status",
            "timeseries",
            "Calls a second by the status that they ended with.",
            prom(
                f"sum by (rpc_response_status_code) (rate(rpc_server_call_duration_seconds_count{{$of}}{RATE}))",
                "{{rpc_response_status_code}}",
            ),
            unit="reqps",
            stack=True,
            runbook="CallgateErrorBudgetBurn",
        ),
        panel(
            "By method",
            "timeseries",
            "Calls a second by method.",
            prom(f"sum by (rpc_method) (rate(rpc_server_call_duration_seconds_count{{$of}}{RATE}))", "{{rpc_method}}"),
            unit="reqps",
        ),
        panel(
            "How long, 99th percentile, by method",
            "timeseries",
            "From the call to the end of its answer. Evaluates that "
            "are asked to wait (`max_wait`) and streams take long by their nature.",
            prom(quantile(0.99, "rpc_server_call_duration_seconds", "rpc_method"), "{{rpc_method}}"),
            unit="s",
            runbook="CallgateEvaluateSlow",
        ),
    ),
    row(
        "Evaluate and Record",
        panel(
            "Evaluate",
            "timeseries",
            "From the request to the committed verdict.",
            *[prom(quantile(q, "callgate_evaluate_duration_seconds"), f"p{100 * q:g}") for q in (0.5, 0.9, 0.99)],
            unit="s",
            runbook="CallgateEvaluateSlow",
        ),
        panel(
            "Record",
            "timeseries",
            "From a report to the committed outcome.",
            *[prom(quantile(q, "callgate_record_duration_seconds"), f"p{100 * q:g}") for q in (0.5, 0.9, 0.99)],
            unit="s",
            runbook="CallgateEvaluateSlow",
        ),
        panel(
            "Calls nobody reported on",
            "timeseries",
            "Leases that ran out, a second: the outcome counts as unknown, and "
            "the next call of the same kind may be refused.",
            prom(f"sum by (instance) (rate(callgate_leases_expired_total{{$of}}{RATE}))", "{{instance}}"),
            unit="ops",
            runbook="CallgateLeasesExpiring",
        ),
    ),
    row(
        "The door",
        panel(
            "At work and waiting",
            "timeseries",
            "Evaluates that are being judged, and those that wait for their turn.",
            prom("sum by (instance) (callgate_admission_at_work{$of})", "at work {{instance}}"),
            prom("sum by (instance) (callgate_admission_waiting{$of})", "waiting {{instance}}"),
            runbook="CallgateQueueFilling",
        ),
        panel(
            "Turned away",
            "timeseries",
            "Evaluates a second that were told at once that the server is overloaded.",
            prom(f"sum by (instance) (rate(callgate_turned_away_total{{$of}}{RATE}))", "{{instance}}"),
            unit="ops",
            runbook="CallgateTurningAway",
        ),
        panel(
            "Wait for a turn",
            "timeseries",
            "How long Evaluates wait at the door before they are judged.",
            *[prom(quantile(q, "callgate_admission_wait_duration_seconds"), f"p{100 * q:g}") for q in (0.5, 0.9, 0.99)],
            unit="s",
            runbook="CallgateQueueFilling",
        ),
        panel(
            "Changes that wait for a commit",
            "timeseries",
            "Changes in the writer's queue: many share the next commit.",
            prom("sum by (instance) (callgate_queue_depth{$of})", "{{instance}}"),
            runbook="CallgateCommitSlow",
        ),
        panel(
            "Wait for a commit to begin",
            "timeseries",
            "How long the oldest change of a commit had waited for it to begin.",
            *[prom(quantile(q, "callgate_queue_wait_duration_seconds"), f"p{100 * q:g}") for q in (0.5, 0.9, 0.99)],
            unit="s",
            runbook="CallgateCommitSlow",
        ),
        panel(
            "Lost races",
            "timeseries",
            "Changes a second that lost a race against another replica and were judged again, by against what.",
            prom(
                f"sum by (callgate_conflict_reason) (rate(callgate_commit_conflicts_total{{$of}}{RATE}))",
                "{{callgate_conflict_reason}}",
            ),
            unit="ops",
            runbook="CallgateConflicts",
        ),
    ),
    row(
        "The database",
        panel(
            "Commit",
            "timeseries",
            "How long one commit of a batch takes.",
            *[prom(quantile(q, "callgate_commit_duration_seconds"), f"p{100 * q:g}") for q in (0.5, 0.9, 0.99)],
            unit="s",
            runbook="CallgateCommitSlow",
        ),
        panel(
            "Changes in a commit",
            "timeseries",
            "How many changes share a commit: more under load, which is well.",
            *[prom(quantile(q, "callgate_commit_batch_size"), f"p{100 * q:g}") for q in (0.5, 0.99)],
        ),
        panel(
            "Commits a second",
            "timeseries",
            "How often each replica commits a batch of changes.",
            prom(f"sum by (instance) (rate(callgate_commit_duration_seconds_count{{$of}}{RATE}))", "{{instance}}"),
            unit="ops",
        ),
    ),
    row(
        "Connections to the database",
        panel(
            "In use",
            "timeseries",
            "Connections of each replica's pool, used and idle, beside the most that it may have.",
            prom(
                "sum by (instance, db_client_connection_state) (db_client_connection_count{$of})",
                "{{db_client_connection_state}} {{instance}}",
            ),
            prom("sum by (instance) (db_client_connection_max{$of})", "most {{instance}}"),
            wide=12,
            runbook="CallgatePoolExhausted",
        ),
        panel(
            "Can store",
            "timeseries",
            "1 while the replica's database stores, else 0.",
            prom("min by (instance) (callgate_store_up{$of})", "{{instance}}"),
            wide=12,
            least=0,
            most=1,
            runbook="CallgateDatabaseDown",
        ),
    ),
    row(
        "The process",
        panel(
            "Processor",
            "timeseries",
            "Cores that each replica keeps busy.",
            prom(f"sum by (instance) (rate(process_cpu_time_seconds_total{{$of}}{RATE}))", "{{instance}}"),
        ),
        panel(
            "Memory",
            "timeseries",
            "What each replica holds in memory.",
            prom("sum by (instance) (process_memory_usage_bytes{$of})", "{{instance}}"),
            unit="bytes",
            runbook="CallgateRestarting",
        ),
        panel(
            "Up since",
            "timeseries",
            "How long each replica has run: a fall to 0 is a start.",
            prom("max by (instance) (process_uptime_seconds{$of})", "{{instance}}"),
            unit="s",
            runbook="CallgateRestarting",
        ),
        panel(
            "Open files",
            "timeseries",
            "File descriptors, connections among them.",
            prom("sum by (instance) (process_unix_file_descriptor_count{$of})", "{{instance}}"),
        ),
        panel(
            "Traces kept",
            "timeseries",
            "Share of the calls that are traced, of those that callers want traced or "
            "that begin here. Below 1: more than about 500 a second, and nobody has "
            "said how many (OTEL_TRACES_SAMPLER).",
            prom("min by (instance) (callgate_trace_share_ratio{$of})", "{{instance}}"),
            unit="percentunit",
        ),
        panel(
            "Tasks",
            "timeseries",
            "Tasks of the runtime, and those that wait for a thread.",
            prom("sum by (instance) (callgate_runtime_tasks{$of})", "tasks {{instance}}"),
            prom("sum by (instance) (callgate_runtime_queue_depth{$of})", "waiting {{instance}}"),
        ),
        panel(
            "Found in memory",
            "timeseries",
            "Share of the look-ups of call trees that memory answered. Low: sessions "
            "change replicas, or memory is small.",
            prom(
                f'sum by (instance) (rate(callgate_cache_lookups_total{{callgate_cache_hit="true",$of}}{RATE}))'
                f" / sum by (instance) (rate(callgate_cache_lookups_total{{$of}}{RATE}))",
                "{{instance}}",
            ),
            unit="percentunit",
            least=0,
            most=1,
            runbook="CallgateConflicts",
        ),
    ),
    row(
        "Memory and upkeep",
        panel(
            "Call trees in memory",
            "timeseries",
            "How many trees each replica holds.",
            prom("sum by (instance) (callgate_cache_trees{$of})", "{{instance}}"),
        ),
        panel(
            "How much they take",
            "timeseries",
            "About how many bytes they take.",
            prom("sum by (instance) (callgate_cache_size_bytes{$of})", "{{instance}}"),
            unit="bytes",
        ),
        panel(
            "Deleted since past its term",
            "timeseries",
            "Rows a second that retention deleted, by kind.",
            prom(
                f"sum by (callgate_deleted_kind) (rate(callgate_deleted_total{{$of}}{RATE}))",
                "{{callgate_deleted_kind}}",
            ),
            unit="ops",
        ),
        panel(
            "Policy unconfirmed",
            "timeseries",
            "How long ago each replica last read which policies are active.",
            prom("max by (instance) (callgate_policy_unconfirmed_seconds{$of})", "{{instance}}"),
            unit="s",
            steps=[(30, "look")],
            runbook="CallgatePolicyUnconfirmed",
        ),
        panel(
            "Age of what was learned",
            "timeseries",
            "How long ago each replica read the retry profiles.",
            prom("max by (instance) (callgate_profiles_age_seconds{$of})", "{{instance}}"),
            unit="s",
            runbook="CallgateProfilesOld",
        ),
        panel(
            "Clock of each replica",
            "timeseries",
            "How far it is from the database's.",
            prom("max by (instance) (callgate_clock_apart_seconds{$of})", "{{instance}}"),
            unit="s",
            runbook="CallgateClockApart",
        ),
        panel(
            "Delay of retention",
            "timeseries",
            "How much later than at its term is deleted what is past it.",
            prom("max(callgate_retention_delay_seconds{$of})", "delay"),
            unit="s",
            runbook="CallgateRetentionDelayed",
        ),
        panel(
            "Revision of the policy",
            "timeseries",
            "Which activation each replica judges by.",
            prom("max by (instance) (callgate_policy_revision{$of})", "{{instance}}"),
            runbook="CallgatePolicyBehind",
        ),
        panel(
            "Certificates",
            "timeseries",
            "How long each certificate still holds.",
            prom(
                "min by (instance, callgate_certificate) (callgate_certificate_left_seconds{$of})",
                "{{callgate_certificate}} {{instance}}",
            ),
            unit="s",
            runbook="CallgateCertificateEnding",
        ),
        panel(
            "Background workers that fail",
            "timeseries",
            "Runs a second that failed, of each worker.",
            prom(
                f'sum by (callgate_worker) (rate(callgate_worker_runs_total{{callgate_outcome="error",$of}}{RATE}))',
                "{{callgate_worker}}",
            ),
            unit="ops",
        ),
        panel(
            "Secrets left out",
            "timeseries",
            "Values a second that were not stored since they are secrets, by why.",
            prom(
                f"sum by (callgate_redaction) (rate(callgate_redactions_total{{$of}}{RATE}))", "{{callgate_redaction}}"
            ),
            unit="ops",
        ),
    ),
)
