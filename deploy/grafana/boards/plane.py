"""The plane: availability, latency and bottlenecks of the servers."""

from panels import METRICS, board, panel, prom, row

RATE = "[$__rate_interval]"


def quantile(share, metric, by=""):
    by = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket{{$of}}{RATE})))"


BOARD = board(
    "plane",
    "the plane",
    "Availability, latency and bottlenecks of the servers.",
    METRICS,
    row(
        "Availability",
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
            "Share of replicas that can store. Below 1, some return UNAVAILABLE.",
            prom("avg(callgate_store_up{$of})"),
            unit="percentunit",
            wide=4,
            high=4,
            runbook="CallgateDatabaseDown",
        ),
        panel(
            "Requests per second",
            "stat",
            "Calls of all methods.",
            prom(f"sum(rate(rpc_server_call_duration_seconds_count{{$of}}{RATE}))"),
            unit="reqps",
            wide=3,
            high=4,
        ),
        panel(
            "Failed through the server's fault",
            "stat",
            "Share of calls with UNAVAILABLE, DEADLINE_EXCEEDED, "
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
            "99th percentile of the time from a request to its committed verdict.",
            prom(quantile(0.99, "callgate_evaluate_duration_seconds")),
            unit="s",
            wide=4,
            high=4,
            steps=[(0.1, "look"), (0.5, "bad")],
            runbook="CallgateEvaluateSlow",
        ),
        panel(
            "Queued Evaluates",
            "stat",
            "Evaluates queued by admission control now.",
            prom("sum(callgate_admission_queued{$of})"),
            wide=3,
            high=4,
            steps=[(64, "look"), (512, "bad")],
            runbook="CallgateQueueFilling",
        ),
        panel(
            "Policies behind",
            "stat",
            "Activations by which the oldest policy of a replica is behind the active one.",
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
            "Calls per second by status.",
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
            "Calls per second by method.",
            prom(f"sum by (rpc_method) (rate(rpc_server_call_duration_seconds_count{{$of}}{RATE}))", "{{rpc_method}}"),
            unit="reqps",
        ),
        panel(
            "Duration, 99th percentile, by method",
            "timeseries",
            "From the call to the end of its answer. Evaluates that "
            "wait (`max_wait`) and streams take longer by design.",
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
            "Expired leases",
            "timeseries",
            "Leases per second that expired without a report: the outcome is unknown, and "
            "the next call of the same kind may be refused.",
            prom(f"sum by (instance) (rate(callgate_leases_expired_total{{$of}}{RATE}))", "{{instance}}"),
            unit="ops",
            runbook="CallgateLeasesExpiring",
        ),
    ),
    row(
        "Admission control and conflicts",
        panel(
            "In progress and queued",
            "timeseries",
            "Evaluates being judged, and those queued by admission control.",
            prom("sum by (instance) (callgate_admission_in_progress{$of})", "in progress {{instance}}"),
            prom("sum by (instance) (callgate_admission_queued{$of})", "queued {{instance}}"),
            runbook="CallgateQueueFilling",
        ),
        panel(
            "Shed",
            "timeseries",
            "Evaluates per second that were shed at once (OVERLOADED).",
            prom(f"sum by (instance) (rate(callgate_shed_total{{$of}}{RATE}))", "{{instance}}"),
            unit="ops",
            runbook="CallgateShedding",
        ),
        panel(
            "Wait for admission",
            "timeseries",
            "Time of Evaluates in the queue of admission control.",
            *[prom(quantile(q, "callgate_admission_wait_duration_seconds"), f"p{100 * q:g}") for q in (0.5, 0.9, 0.99)],
            unit="s",
            runbook="CallgateQueueFilling",
        ),
        panel(
            "Changes queued for a commit",
            "timeseries",
            "Changes in the queue of the writer task. Many share the next commit.",
            prom("sum by (instance) (callgate_queue_depth{$of})", "{{instance}}"),
            runbook="CallgateCommitSlow",
        ),
        panel(
            "Wait for a commit",
            "timeseries",
            "Wait of the oldest change of a commit until the commit began.",
            *[prom(quantile(q, "callgate_queue_wait_duration_seconds"), f"p{100 * q:g}") for q in (0.5, 0.9, 0.99)],
            unit="s",
            runbook="CallgateCommitSlow",
        ),
        panel(
            "Conflicts",
            "timeseries",
            "Changes per second that were decided again after a conflict with another replica, by cause.",
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
            "Duration of one commit of a batch.",
            *[prom(quantile(q, "callgate_commit_duration_seconds"), f"p{100 * q:g}") for q in (0.5, 0.9, 0.99)],
            unit="s",
            runbook="CallgateCommitSlow",
        ),
        panel(
            "Changes per commit",
            "timeseries",
            "Number of changes that share a commit: more under load, as intended.",
            *[prom(quantile(q, "callgate_commit_batch_size"), f"p{100 * q:g}") for q in (0.5, 0.99)],
        ),
        panel(
            "Commits per second",
            "timeseries",
            "Commits of batches per second and replica.",
            prom(f"sum by (instance) (rate(callgate_commit_duration_seconds_count{{$of}}{RATE}))", "{{instance}}"),
            unit="ops",
        ),
    ),
    row(
        "Connections to the database",
        panel(
            "Connections",
            "timeseries",
            "Connections of each replica's pool, used and idle, and their maximum.",
            prom(
                "sum by (instance, db_client_connection_state) (db_client_connection_count{$of})",
                "{{db_client_connection_state}} {{instance}}",
            ),
            prom("sum by (instance) (db_client_connection_max{$of})", "maximum {{instance}}"),
            wide=12,
            runbook="CallgatePoolExhausted",
        ),
        panel(
            "Can store",
            "timeseries",
            "1 while the replica can store in the database, else 0.",
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
            "Processor cores in use by each replica.",
            prom(f"sum by (instance) (rate(process_cpu_time_seconds_total{{$of}}{RATE}))", "{{instance}}"),
        ),
        panel(
            "Memory",
            "timeseries",
            "Resident memory of each replica.",
            prom("sum by (instance) (process_memory_usage_bytes{$of})", "{{instance}}"),
            unit="bytes",
            runbook="CallgateRestarting",
        ),
        panel(
            "Uptime",
            "timeseries",
            "Time since the start of each replica: a fall to 0 is a restart.",
            prom("max by (instance) (process_uptime_seconds{$of})", "{{instance}}"),
            unit="s",
            runbook="CallgateRestarting",
        ),
        panel(
            "Open files",
            "timeseries",
            "Open file descriptors, including connections.",
            prom("sum by (instance) (process_unix_file_descriptor_count{$of})", "{{instance}}"),
        ),
        panel(
            "Sampled traces",
            "timeseries",
            "Share of sampled traces, of those that callers sample or "
            "that begin here. Below 1: more than about 500 calls per second, and "
            "OTEL_TRACES_SAMPLER is not set.",
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
            "Cache hits",
            "timeseries",
            "Share of lookups of call trees that hit the cache. If low, sessions "
            "change replicas, or the cache is too small.",
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
        "Cache and maintenance",
        panel(
            "Cached call trees",
            "timeseries",
            "Number of call trees in the cache of each replica.",
            prom("sum by (instance) (callgate_cache_trees{$of})", "{{instance}}"),
        ),
        panel(
            "Cache size",
            "timeseries",
            "Approximate size of the cache in bytes.",
            prom("sum by (instance) (callgate_cache_size_bytes{$of})", "{{instance}}"),
            unit="bytes",
        ),
        panel(
            "Deleted by retention",
            "timeseries",
            "Rows per second that retention deleted, by kind.",
            prom(
                f"sum by (callgate_deleted_kind) (rate(callgate_deleted_total{{$of}}{RATE}))",
                "{{callgate_deleted_kind}}",
            ),
            unit="ops",
        ),
        panel(
            "Policy unconfirmed",
            "timeseries",
            "Time since each replica last read which policies are active.",
            prom("max by (instance) (callgate_policy_unconfirmed_seconds{$of})", "{{instance}}"),
            unit="s",
            steps=[(30, "look")],
            runbook="CallgatePolicyUnconfirmed",
        ),
        panel(
            "Age of retry profiles",
            "timeseries",
            "Time since each replica last read the retry profiles.",
            prom("max by (instance) (callgate_profiles_age_seconds{$of})", "{{instance}}"),
            unit="s",
            runbook="CallgateProfilesOld",
        ),
        panel(
            "Clock difference",
            "timeseries",
            "Difference of each replica's clock from the database's.",
            prom("max by (instance) (callgate_clock_difference_seconds{$of})", "{{instance}}"),
            unit="s",
            runbook="CallgateClockDifference",
        ),
        panel(
            "Retention delay",
            "timeseries",
            "Delay of deletions after the retention period.",
            prom("max(callgate_retention_delay_seconds{$of})", "delay"),
            unit="s",
            runbook="CallgateRetentionDelayed",
        ),
        panel(
            "Policy revision",
            "timeseries",
            "Policy activation in use by each replica.",
            prom("max by (instance) (callgate_policy_revision{$of})", "{{instance}}"),
            runbook="CallgatePolicyBehind",
        ),
        panel(
            "Certificates",
            "timeseries",
            "Remaining validity of each certificate.",
            prom(
                "min by (instance, callgate_certificate) (callgate_certificate_remaining_seconds{$of})",
                "{{callgate_certificate}} {{instance}}",
            ),
            unit="s",
            runbook="CallgateCertificateEnding",
        ),
        panel(
            "Failed background workers",
            "timeseries",
            "Failed runs per second, by worker.",
            prom(
                f'sum by (callgate_worker) (rate(callgate_worker_runs_total{{callgate_outcome="error",$of}}{RATE}))',
                "{{callgate_worker}}",
            ),
            unit="ops",
        ),
        panel(
            "Redactions",
            "timeseries",
            "Redacted secrets per second, by cause.",
            prom(
                f"sum by (callgate_redaction) (rate(callgate_redactions_total{{$of}}{RATE}))", "{{callgate_redaction}}"
            ),
            unit="ops",
        ),
    ),
)
